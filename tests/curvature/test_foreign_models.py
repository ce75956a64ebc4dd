"""What models of others do that once gave a silent wrong number, a false alarm or a traceback: right or one line."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from runner.curvature import CurvatureOperator, verify
from runner.curvature.graph.errors import MeasurementError
from runner.curvature.graph.from_module import trace_module
from runner.curvature.parameters.operator import ParameterOperator
from tests.curvature.cases import Own, X, Y, between, mlp, relative_error, seeded


def own(forward: Any, **parts: Any) -> Own:
    """forward(net, x) around an MLP."""
    return Own(forward, net=mlp(), **parts)


@dataclass
class Output:
    logits: Tensor
    loss: Tensor | None = None


def operator(
    module: nn.Module, loss: Any = F.cross_entropy, given: Any = None, **options: Any
) -> ParameterOperator:
    return ParameterOperator(module, loss, [(X if given is None else given, Y)], **options)


PLAIN = operator(mlp()).dense()


def with_loss(net: Own, t: Tensor, labels: Tensor) -> Output:
    logits = net.net(t)
    return Output(logits, F.cross_entropy(logits, labels))


def test_a_loss_inside_the_model_has_a_hessian_and_no_gauss_newton_matrix():
    given, loss = {"t": X, "labels": Y}, lambda output, _: output.loss
    assert torch.allclose(operator(own(with_loss), loss, given).dense(), PLAIN)
    for part in ("gauss_newton", "empirical_fisher", "fisher"):
        with pytest.raises(ValueError, match=r"scalar of the output|Fisher matrix is known"):
            operator(own(with_loss), loss, given, part=part)
    scalar = own(lambda s, t: F.cross_entropy(s.net(t), Y))
    assert torch.allclose(operator(scalar, lambda output, _: output).dense(), PLAIN)
    with pytest.raises(ValueError, match="no tensor with one row per example"):
        trace_module(scalar, lambda output, _: output, (X, Y))
    each = own(lambda s, t: F.cross_entropy(s.net(t), Y, reduction="none"))
    with pytest.raises(ValueError, match="linear"):
        operator(each, lambda output, _: output.mean(), part="gauss_newton")


def test_a_penalty_on_the_module_is_measured_and_one_on_tensors_held_outside_is_refused():
    net = mlp()

    def loss(f, y):
        return F.cross_entropy(f, y) + 0.5 * sum(p.square().sum() for p in net.parameters())

    found = operator(net, loss)
    assert torch.allclose(found.dense(), PLAIN + torch.eye(len(PLAIN)), atol=1e-12)
    assert verify(found, generator=seeded()).ok
    with pytest.raises(ValueError, match=r"'0.weight' by another way .*a penalty"):
        operator(net, loss, part="gauss_newton")
    held = net[0].weight
    for frozen in (False, True):
        net.requires_grad_(not frozen)
        with pytest.raises(ValueError, match=r"holds parameter '0.weight' itself"):
            operator(
                net, lambda f, y: F.cross_entropy(f, y) + held.square().sum(), groups=["0", "2"]
            )
        assert held.requires_grad is not frozen


OWN = seeded()
COINS = {
    "torch": lambda: torch.rand(()).item(),
    "a generator of its own": lambda: torch.rand((), generator=OWN).item(),
    "numpy": lambda: np.random.rand(),  # noqa: NPY002
    "python": random.random,
}


@pytest.mark.parametrize("coin", COINS)
def test_one_draw_for_the_whole_batch_is_refused_whatever_it_gives(coin):
    module = own(lambda s, t: s.net(t) * (1.0 if COINS[coin]() < 2 else 0.5))
    dag = between(lambda t: t.tanh() * (1.0 if COINS[coin]() < 2 else 0.5))
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    for measure in (operator, lambda m: trace_module(m, F.cross_entropy, (X, Y))):
        with pytest.raises(ValueError, match="draws at random"):
            measure(module)
    if "own" not in coin:
        with pytest.raises(ValueError, match="draws at random"):
            CurvatureOperator(dag, X, Y)
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert np.random.get_state()[1].tolist() == states[2]  # noqa: NPY002


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
def test_rows_for_padding_and_complex_parameters_are_no_false_alarm(dtype, part):
    tokens = torch.tensor([[0, 1, 2], [0, 3, 1], [2, 2, 0]])
    net = nn.Sequential(nn.Embedding(5, 4, padding_idx=0), nn.Flatten(), nn.Linear(12, 3)).to(dtype)
    assert verify(
        ParameterOperator(net, "cross_entropy", (tokens, Y[:3]), part=part), generator=seeded()
    ).ok
    weight = nn.Parameter(
        torch.randn(3, dtype=torch.complex64 if dtype == torch.float32 else torch.complex128)
    )
    module = own(
        lambda s, t: s.net.to(t.dtype)(t) * (torch.fft.fft(t)[:, :3] * s.filter).abs(),
        filter=weight,
    )
    assert verify(operator(module.to(dtype), given=X.to(dtype), part=part), generator=seeded()).ok


def test_examples_that_are_fitted_round_in_float32_and_are_not_refused():
    net, x = mlp().float(), X.float()
    with torch.no_grad():
        for p in net[-1].parameters():
            p *= 30
    found = ParameterOperator(net, "cross_entropy", (x, net(x).argmax(1)))
    assert found.graphs.skew > 1e-2
    exact = found.in_float64().dense()
    assert relative_error({"": found.dense()}, {"": exact}) < 1e-2


def test_a_certificate_costs_few_gradients_and_tells_a_wrong_product():
    found = verify(operator(mlp()), generator=seeded())
    assert found.ok and found.gradients <= 30
    wrong = operator(mlp())
    right = wrong._product
    wrong._product = lambda *a: 1.01 * right(*a)
    found = verify(wrong, generator=seeded())
    assert not found.ok and found.gradients <= 45
    with pytest.raises(MeasurementError, match=r"write it out as F.hardtanh\(x / 6 \+ 0.5, 0, 1\)"):
        verify(between(F.hardsigmoid), X, Y, generator=seeded())


def test_the_distribution_of_the_targets_is_named_where_the_loss_does_not_tell():
    expected = operator(mlp(), part="gauss_newton").dense()
    focal = lambda f, y: (1 - f.softmax(1).gather(1, y[:, None])).square().mean()  # noqa: E731
    for loss in (focal, nn.CrossEntropyLoss(weight=torch.rand(3).double())):
        with pytest.raises(ValueError, match="name the distribution with likelihood='categorical'"):
            operator(mlp(), loss, part="fisher")
        found = operator(mlp(), loss, part="fisher", likelihood="categorical")
        assert (
            torch.allclose(found.dense(), expected, atol=1e-12)
            and verify(found, generator=seeded()).ok
        )
    with pytest.raises(ValueError, match="likelihood is for part"):
        operator(mlp(), likelihood="categorical")


class Doubles(TorchDispatchMode):
    """The largest float64 or int64 tensor that is made."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        sizes = [
            t.numel() for t in tree_leaves(out) if isinstance(t, Tensor) and t.dtype.itemsize == 8
        ]
        self.largest = max([self.largest, *sizes])
        return out


@pytest.mark.parametrize("part", ["gauss_newton", "fisher", "sampled"])
def test_a_large_vocabulary_is_never_copied_to_float64(part, monkeypatch):
    monkeypatch.setattr("runner.curvature.parameters.likelihood.DRAWN_AT_ONCE", 1 << 10)
    net, tokens = (
        nn.Sequential(nn.Embedding(7, 2), nn.Linear(2, 1000)),
        torch.arange(12).view(2, 6) % 7,
    )
    options: dict[str, Any] = (
        {"part": "fisher", "samples": 2} if part == "sampled" else {"part": part}
    )
    loss = lambda f, y: F.cross_entropy(f.flatten(0, 1), y.flatten())  # noqa: E731
    found = ParameterOperator(net, loss, (tokens, tokens), check=False, **options)
    with Doubles() as seen:
        assert bool((found @ torch.ones(found.shape[0])).any())
    assert seen.largest < 12 * 1000 / 2


NESTED = torch.nested.nested_tensor([torch.ones(2, 6), torch.ones(3, 6)], layout=torch.jagged)
SPARSE = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Flatten(), nn.Linear(18, 3))
REFUSED = {
    "sparse": (lambda: operator(SPARSE, given=torch.arange(24).view(4, 6) % 5), "sparse"),
    "meta": (lambda: operator(mlp().to("meta")), "meta device"),
    "its own gradient fails": (
        lambda: operator(own(lambda s, t: (lambda u: (u.exp_(), u)[1])(torch.tanh(s.net(t))))),
        "inplace",
    ),
    "no gradient": (
        lambda: operator(own(lambda s, t: s.net(t).detach())),
        "does not depend on the parameters",
    ),
    "no module": (lambda: operator(F.relu), "expected an nn.Module"),
    "a distribution": (
        lambda: operator(
            own(lambda s, t: torch.distributions.Normal(s.net(t), 1.0)),
            lambda out, y: -out.log_prob(F.one_hot(y, 3)).mean(),
            part="gauss_newton",
        ),
        "object of class Normal",
    ),
    "nested": (lambda: operator(mlp(), given=NESTED), "nested tensor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_measured_is_told_in_one_line(name):
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=message) as error:
        make()
    assert "\n" not in str(error.value)
