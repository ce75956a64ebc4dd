"""The identity of a snapshot: whatever changes its numbers changes it, and nothing else does."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from runner.diagnose.problem import Problem, content_of
from runner.diagnose.settings import Request
from runner.diagnose.target import Snapshot
from tests.diagnose import targets

SCALE = 1.0


class Net(nn.Module):
    """Attributes that no state dict holds."""

    def __init__(self, act=torch.tanh, scale=1.0, shift=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(4, 5), nn.Linear(5, 3)
        self.act, self.scale, self.shift = act, scale, torch.tensor(shift)

    def forward(self, x):
        return self.b(self.act(self.a(x) * self.scale + self.shift)) * SCALE


def frozen():
    module = Net()
    module.a.bias.requires_grad_(False)
    return module


def key(module=None, loss=None, rows=6):
    x, y = targets.data(rows)
    module = Net() if module is None else module
    loss = nn.CrossEntropyLoss() if loss is None else loss
    batches = [(x[:4].float(), y[:4]), (x[4:].float(), y[4:])]
    return Problem(Snapshot(0, module.eval(), loss, batches, True), Request()).content


CHANGES = {
    "loss": lambda: key(loss=nn.CrossEntropyLoss(label_smoothing=1e-6)),
    "closure": lambda: key(loss=lambda f, y: 1.000001 * F.cross_entropy(f, y)),
    "activation": lambda: key(Net(torch.sigmoid)),
    "number": lambda: key(Net(scale=1.000001)),
    "tensor that is no buffer": lambda: key(Net(shift=1e-6)),
    "frozen parameter": lambda: key(frozen()),
    "last batch": lambda: key(rows=7),
}


def test_a_change_gives_another_identity_and_the_same_made_again_the_same(monkeypatch):
    before = key()
    assert key() == before
    made = {name: make() for name, make in CHANGES.items()}
    assert len({before, *made.values()}) == 1 + len(made)
    monkeypatch.setattr("tests.diagnose.test_problem.SCALE", 1.5)
    assert key() != before


@pytest.mark.parametrize(
    "strange", [torch.eye(2).to_sparse(), torch.empty(3, device="meta"), torch.tensor([1j]).conj()]
)
def test_tensors_of_every_kind_have_bytes(strange):
    assert content_of(strange) == content_of(strange.clone())
