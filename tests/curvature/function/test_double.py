"""The float64 copy of a function: nothing in it runs in lower precision, or it is seen."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import _get_current_function_mode_stack

from runner.curvature import ParameterOperator, verify
from runner.curvature.function.double import FloatCopy, Record, double_precision
from tests.curvature.cases import Own, with_backward
from tests.curvature.oracles import parameter_matrix, relative
from tests.draws import normal
from tests.errors import refusal

CROSS = nn.CrossEntropyLoss()

CASTS = {
    "float": lambda t: t.float(),
    "half": lambda t: t.half(),
    "bfloat16": lambda t: t.bfloat16(),
    "to": lambda t: t.to(torch.float32),
    "to keyword": lambda t: t.to(dtype=torch.float16),
    "to like": lambda t: t.to(torch.ones(2, dtype=torch.float32)),
    "type": lambda t: t.type(torch.float32),
    "legacy type": lambda t: t.type("torch.FloatTensor"),
    "legacy class": lambda t: t.type(torch.HalfTensor),
    "softmax": lambda t: F.softmax(t, -1, dtype=torch.float32),
    "sum": lambda t: t.sum(0, dtype=torch.bfloat16),
    "zeros": lambda t: torch.zeros(3, dtype=torch.float32),
    "new": lambda t: t.new_ones(3, dtype=torch.float16),
    "like": lambda t: torch.ones_like(t, dtype=torch.float16),
    "integers": lambda t: torch.arange(3).float(),
}


@pytest.mark.parametrize("kind", CASTS)
def test_casts_give_float64(kind):
    record = Record()
    with double_precision(record):
        assert CASTS[kind](torch.ones(3)).dtype == torch.float64
        assert torch.ones(3).cfloat().dtype == torch.complex128
    assert record.changed and not record.narrowed and torch.ones(3).dtype == torch.float32


def test_bytes_and_what_is_written_to_stay_as_they_are():
    kept = torch.zeros(3, dtype=torch.float32)
    record = Record()
    with double_precision(record):
        assert torch.ones(3).view(torch.float32).shape == (6,)
        assert torch.frombuffer(np.ones(2, np.float32), dtype=torch.float32).tolist() == [1, 1]
        kept.add_(torch.ones(3))
    assert kept.tolist() == [1, 1, 1] and record.narrowed == {"add_"}


def norm_in_float32(t):
    wide = t.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(t.dtype)


def under_autocast(t):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.tanh(t @ torch.eye(4))


INSIDE = {
    "float": lambda t: t.tanh().float(),
    "norm": norm_in_float32,
    "softmax": lambda t: F.softmax(t, -1, dtype=torch.float32).type_as(t),
    "bfloat16": lambda t: t.bfloat16().to(t.dtype).sin(),
    "autocast": under_autocast,
}


def network(function, seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    parts = {"first": nn.Linear(3, 4), "last": nn.Linear(4, 3)}
    run = lambda m, t: m.last(function(m.first(t)).to(m.last.weight.dtype))  # noqa: E731
    return Own(run, **parts).to(dtype)


def data(dtype=torch.float32):
    return normal(6, 3).to(dtype), torch.arange(6) % 3


@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
@pytest.mark.parametrize("kind", INSIDE)
def test_networks_with_casts_are_decided_as_right(kind, part):
    for seed in range(5):
        found = ParameterOperator(network(INSIDE[kind], seed), CROSS, data(), part=part)
        assert found.checks["3 product"].startswith("right"), found
        assert found.checks["2 gradient"].startswith("right"), found


@pytest.mark.parametrize("cast", [False, True])
def test_a_copy_in_which_nothing_was_cast_is_not_looked_at_again(cast):
    """At displaced points; `verify`, on other batches, looks again."""
    seen = []

    def body(_, t):
        seen.append(any(isinstance(mode, FloatCopy) for mode in _get_current_function_mode_stack()))
        return t.float() if cast else 1.0 * t

    module = nn.Sequential(nn.Linear(3, 4), Own(body), nn.Tanh(), nn.Linear(4, 2))
    data = normal(6, 3).float(), torch.arange(6) % 2
    operator = ParameterOperator(module, CROSS, data)
    assert seen.count(True) == (3 if cast else 1)  # a product; two gradients
    seen.clear()
    assert verify(operator).ok
    assert seen.count(True) > 1


def test_a_wrong_second_derivative_inside_of_a_cast_is_refused():
    """By half a percent."""
    sine = with_backward(torch.sin, lambda g, t: g * (1.005 * t.cos() - 0.005 * t.cos().detach()))
    with refusal("the second derivative differs"):
        ParameterOperator(network(lambda t: sine(t.float())), CROSS, data())


@torch.jit.script
def scripted(t: torch.Tensor):
    return (t.float() * 2).tanh().to(t.dtype)


class Numpy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        ctx.save_for_backward(t)
        return torch.from_numpy(np.tanh(t.numpy().astype(np.float32)))

    @staticmethod
    def backward(ctx, g):
        return g * (1 - ctx.saved_tensors[0].tanh().square())


@pytest.mark.parametrize("function, name", [(scripted, "ToCopyBackward0"), (Numpy.apply, "numpy")])
def test_what_no_mode_reaches_is_named_and_compared_with_large_steps(function, name):
    module, given = network(function), data()
    found = ParameterOperator(module, CROSS, given)
    assert "give less than float64" in repr(found) and name in repr(found)
    assert "wrong" not in repr(found)
    wide, (x, y) = copy.deepcopy(module).double(), given
    expected = parameter_matrix("hessian", wide, CROSS, x.double(), y)
    assert relative(found.dense().double(), expected) < 1e-4


def test_a_detached_part_next_to_scripted_code_is_refused():
    with refusal("differs"):
        ParameterOperator(network(lambda t: scripted(t) * t.detach()), CROSS, data())
    found = verify(ParameterOperator(network(scripted), CROSS, data()))
    assert "wrong" not in str(found)


def in_float32_alone(t):
    return t.cos() * (1.02 if t.dtype == torch.float32 else 1.0)


@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
def test_a_kernel_that_is_wrong_in_float32_alone_is_refused(part):
    """Its float64 copy is right."""
    sine = with_backward(torch.sin, lambda g, t: g * in_float32_alone(t))
    for seed in range(5):
        with refusal("wrong in that precision alone"):
            ParameterOperator(network(sine, seed), CROSS, data(), part=part)
        module = network(sine, seed, torch.float64)
        assert "wrong" not in repr(ParameterOperator(module, CROSS, data(torch.float64), part=part))


@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_roundings_of_half_precision_are_not_taken_for_a_wrong_kernel(dtype, part):
    for seed in range(5):
        found = ParameterOperator(network(torch.relu, seed, dtype), CROSS, data(dtype), part=part)
        assert found.checks["3 product"].startswith("right"), found


def confident(seed, wrong):
    """A network that is sure of its labels, or of others for some examples."""
    module, (x, _) = network(torch.tanh, seed), data()
    with torch.no_grad():
        module.last.weight.mul_(100)
        y = module(x).argmax(1)
    y[:wrong] = (y[:wrong] + 1) % 3
    return module, (x, y)


@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
@pytest.mark.parametrize("wrong", [0, 1, 6])
def test_probabilities_that_float32_rounds_to_one_are_not_taken_for_a_wrong_kernel(wrong, part):
    for seed in range(10):
        module, given = confident(seed, wrong)
        assert "FAILED" not in repr(ParameterOperator(module, CROSS, given, part=part))
