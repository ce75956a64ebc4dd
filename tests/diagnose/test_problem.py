"""The hash of a snapshot: whatever changes its numbers changes the hash, and nothing else does."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from runner.diagnose.command import Options
from runner.diagnose.problem import Problem, content
from runner.diagnose.target import Snapshot
from tests.diagnose import targets

SCALE = 1.0


class Net(nn.Module):
    """Attributes that no state dict holds."""

    def __init__(self, act=torch.tanh, dims=(1,), scale=1.0, shift=0.0, plan=None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(4, 5), nn.Linear(5, 3)
        self.act, self.dims, self.scale, self.shift, self.plan = (
            act,
            dims,
            scale,
            torch.tensor(shift),
            plan or {},
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.act(self.a(x) * self.scale + self.shift)) * SCALE


def weighted(c):
    return lambda output, target: c * F.cross_entropy(output, target)


class Smoothed:
    def __init__(self, amount):
        self.amount = amount

    def __call__(self, output, target):
        return F.cross_entropy(output, target, label_smoothing=self.amount)


def key(module=None, loss=None, behaviour=()):
    x, y = targets.data()
    module = Net() if module is None else module
    return content(
        Snapshot(
            0, module, nn.CrossEntropyLoss() if loss is None else loss, [(x.float(), y)], False
        ),
        behaviour,
    )


CHANGES = {
    "label smoothing": (
        lambda amount: key(loss=nn.CrossEntropyLoss(label_smoothing=amount)),
        0.0,
        0.1,
    ),
    "class weights": (
        lambda w: key(loss=nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, w]))),
        3.0,
        4.0,
    ),
    "partial": (
        lambda amount: key(loss=functools.partial(F.cross_entropy, label_smoothing=amount)),
        0.1,
        0.2,
    ),
    "closure": (lambda c: key(loss=weighted(c)), 1.0, 2.0),
    "object": (lambda amount: key(loss=Smoothed(amount)), 0.1, 0.2),
    "activation": (lambda act: key(Net(act)), torch.tanh, torch.sigmoid),
    "activation of torch.nn.functional": (lambda act: key(Net(act)), F.relu, F.silu),
    "activation with a closure": (lambda c: key(Net(lambda t: torch.tanh(c * t))), 1.0, 2.0),
    "tuple": (lambda dims: key(Net(dims=dims)), (1,), (2,)),
    "mapping": (lambda heads: key(Net(plan={"heads": heads})), [1, 2], [1, 3]),
    "tensor that is no buffer": (lambda shift: key(Net(shift=shift)), 0.0, 1.0),
    "number": (lambda scale: key(Net(scale=scale)), 1.0, 2.0),
    "mode": (lambda mode: key(Net().train(mode)), False, True),
    "behaviour": (lambda last: key(behaviour=(1.0, last)), 2.0, 2.001),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_gives_another_content(name):
    make, one, other = CHANGES[name]
    assert make(one) != make(other)


def test_the_same_made_again_gives_the_same_content():
    makers = (
        lambda: key(Net(F.silu, (1, 2), plan={"a": {1, 2}, "f": F.relu}), weighted(2.0)),
        lambda: key(loss=Smoothed(0.1), behaviour=(1.0, 2.0)),
    )
    for make in makers:
        assert make() == make()


def test_what_a_function_calls_elsewhere_is_seen_by_its_numbers(monkeypatch):
    def now():
        x, y = targets.data()
        problem = Problem(
            Snapshot(0, Net(), nn.CrossEntropyLoss(), [(x.float(), y)], False), Options()
        )
        found = problem.first_gradients
        return content(problem.snapshot, (*found.values, *found.norms))

    before = now()
    assert now() == before
    monkeypatch.setattr("tests.diagnose.test_problem.SCALE", 1.5)
    assert now() != before
