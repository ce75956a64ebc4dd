"""Ctrl-C while an operator is built leaves the program as it was."""

import signal
import sys

import pytest
import torch
from torch import nn
from torch.utils import checkpoint

from runner.curvature import LayerOperator, ParameterOperator
from runner.curvature.basics.interrupts import INTERRUPTS
from tests.draws import tanh_net

CROSS = nn.CrossEntropyLoss()
X, Y = torch.randn(6, 3), torch.arange(6) % 3


@pytest.fixture(autouse=True)
def python_handler():
    """That of Python: a command that ran in this process before remembers every Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def state(module):
    return (
        {name: id(p) for name, p in module.named_parameters()},
        [len(m._forward_hooks) for m in module.modules()],
        (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_rng_state().tolist()),
        (checkpoint.CheckpointFunction, torch.backends.mha.get_fastpath_enabled()),
        (torch._C._len_torch_function_stack(), signal.getsignal(signal.SIGINT)),
    )


def interrupted(build, call):
    """Whether a build was stopped by Ctrl-C at this call of a function of Python."""
    left = [call]

    def trace(frame, event, arg):
        left[0] -= 1
        if left[0] == 0:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        build()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return left[0] <= 0


@pytest.mark.parametrize("kind", [ParameterOperator, LayerOperator])
def test_an_interrupt_at_any_call_leaves_nothing_replaced(kind):
    module = tanh_net(3, 4, 3)

    def build():
        kind(module, CROSS, [(X[:2], Y[:2]), (X[2:], Y[2:])])

    build()
    before, call = state(module), 1
    while interrupted(build, call):
        assert state(module) == before, call
        call += 97
    assert call > 3000
    build()


def test_a_loader_is_interrupted_at_once():
    class Waiting:
        def __iter__(self):
            signal.raise_signal(signal.SIGINT)
            yield X, Y

    with pytest.raises(KeyboardInterrupt), INTERRUPTS:
        ParameterOperator(tanh_net(3, 4, 3), CROSS, Waiting())


def test_a_handler_of_the_program_hears_of_an_interrupt_when_all_is_put_back():
    heard = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with INTERRUPTS:
            signal.raise_signal(signal.SIGINT)
            assert not heard
        assert heard == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_at_the_end_of_a_block_is_not_kept_for_the_next(monkeypatch):
    replace = signal.signal

    def late(number, handler):
        if handler is signal.default_int_handler:  # just before it is put back
            signal.raise_signal(number)
        return replace(number, handler)

    with pytest.raises(KeyboardInterrupt), INTERRUPTS:
        monkeypatch.setattr(signal, "signal", late)
    monkeypatch.undo()
    with INTERRUPTS:
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
