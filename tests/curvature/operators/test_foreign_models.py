"""What models of others do that once gave a silent wrong number, a false alarm or a traceback:
right or one line."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from runner.curvature import LayerOperator, ParameterOperator, exact_blocks, verify
from tests.curvature.cases import Own, X, Y, between, mlp
from tests.curvature.oracles import relative
from tests.draws import seeded
from tests.errors import each_row, refusal


def own(forward, **parts):
    """forward(net, x) around an MLP."""
    return Own(forward, net=mlp(), **parts)


@dataclass
class Output:
    logits: Tensor
    loss: Tensor | None = None


def operator(module, loss=F.cross_entropy, given=X, **options):
    return ParameterOperator(module, loss, (given, Y), **options)


PLAIN = operator(mlp()).dense()


def with_loss(net, t, labels):
    logits = net.net(t)
    return Output(logits, F.cross_entropy(logits, labels))


LOSS_INSIDE = {
    "field": (own(with_loss), lambda output, _: output.loss, {"t": X, "labels": Y}, 5),
    "scalar": (own(lambda s, t: F.cross_entropy(s.net(t), Y)), lambda output, _: output, X, 20),
}
"""The scalar's batch cannot be cut: its layer has perturbations of all rows."""


@each_row("module, loss, given, size", LOSS_INSIDE)
def test_a_loss_inside_the_model_has_a_hessian_and_no_gauss_newton_matrix(
    module, loss, given, size
):
    assert torch.allclose(operator(module, loss, given).dense(), PLAIN)
    with refusal("part='hessian' alone"):
        operator(module, loss, given, part="gauss_newton")
    layers = LayerOperator(module, loss, (given, Y), ["net.0"])
    assert layers.sizes == {"net.0": size} and verify(layers).ok


def test_a_penalty_on_the_module_is_measured_and_one_on_tensors_held_outside_is_refused():
    net = mlp()

    def loss(f, y):
        return F.cross_entropy(f, y) + 0.5 * sum(p.square().sum() for p in net.parameters())

    found, expected = operator(net, loss), PLAIN + torch.eye(len(PLAIN))
    assert torch.allclose(found.dense(), expected, atol=1e-12)
    halves = ParameterOperator(net, loss, [(X[:2], Y[:2]), (X[2:], Y[2:])])
    assert torch.allclose(halves.dense(), expected, atol=1e-12)
    assert verify(found, generator=seeded()).ok
    with refusal("a penalty"):
        operator(net, loss, part="gauss_newton")
    held = net[0].weight
    with refusal(r"'0.weight' is held outside of the module's parameters"):
        operator(net, lambda f, y: F.cross_entropy(f, y) + held.square().sum(), groups=["0", "2"])


COINS = {
    "torch": lambda: torch.rand(()).item(),
    "numpy": lambda: np.random.rand(),  # noqa: NPY002
    "python": random.random,
}


def random_states():
    of_numpy = np.random.get_state()[1]  # noqa: NPY002
    return [torch.get_rng_state().tolist(), random.getstate(), of_numpy.tolist()]


@pytest.mark.parametrize("coin", COINS.values(), ids=COINS)
def test_a_draw_for_the_whole_batch_is_refused_where_it_matters(coin):
    random_output = own(lambda s, t: s.net(t) * (1.0 + coin()))
    harmless = own(lambda s, t: s.net(t) * (1.0 + (coin() > 2)))
    before = random_states()
    with refusal("draws at random"):
        operator(random_output)
    assert torch.allclose(operator(harmless).dense(), PLAIN)
    assert random_states() == before


PYTHON, NUMPY, TORCH = random.Random(0), np.random.Generator(np.random.MT19937(0)), seeded()
GENERATORS = {
    "python": PYTHON.random,
    "numpy": NUMPY.random,
    "torch": lambda: torch.rand(6, generator=TORCH),
}


@pytest.mark.parametrize("draw", GENERATORS.values(), ids=GENERATORS)
@refusal(r"keeps values from one call to the next|differ")
def test_a_generator_of_the_modules_own_is_refused(draw):
    """No state of torch holds it."""
    operator(own(lambda s, t: s.net(t + 1e-3 * draw())))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
def test_rows_for_padding_and_complex_parameters_are_no_false_alarm(dtype, part):
    tokens = torch.tensor([[0, 1, 2], [0, 3, 1], [2, 2, 0]])
    net = nn.Sequential(nn.Embedding(5, 4, padding_idx=0), nn.Flatten(), nn.Linear(12, 3)).to(dtype)
    assert verify(ParameterOperator(net, "cross_entropy", (tokens, Y[:3]), part=part)).ok

    def filtered(s, t):
        return s.net(t) * (torch.fft.fft(t)[:, :3] * s.filter).abs()

    weight = nn.Parameter(torch.randn(3, dtype=dtype.to_complex()))
    module = Own(filtered, net=mlp().to(dtype), filter=weight)
    assert verify(operator(module, given=X.to(dtype), part=part)).ok


def test_examples_that_are_fitted_round_in_float32_and_are_not_refused():
    net, x = mlp().float(), X.float()
    with torch.no_grad():
        for p in net[-1].parameters():
            p *= 30
    labels = net(x).argmax(1)
    found = ParameterOperator(net, "cross_entropy", (x, labels)).dense()
    exact = ParameterOperator(net.double(), "cross_entropy", (X, labels)).dense()
    assert relative(found, exact) < 1e-2


class Doubles(TorchDispatchMode):
    """The largest float64 or int64 tensor that is made."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            if isinstance(t, Tensor) and t.dtype.itemsize == 8:
                self.largest = max(self.largest, t.numel())
        return out


def test_a_large_vocabulary_is_never_copied_to_float64():
    net = nn.Sequential(nn.Embedding(7, 2), nn.Linear(2, 300))
    tokens = torch.arange(12).view(2, 6) % 7
    loss = lambda f, y: F.cross_entropy(f.flatten(0, 1), y.flatten())  # noqa: E731
    found = ParameterOperator(net, loss, (tokens, tokens), part="gauss_newton", check=False)
    with Doubles() as seen:
        assert bool((found @ torch.ones(found.shape[0])).any())
    assert seen.largest < 12 * 300 / 2


def in_place(s, t):
    u = torch.tanh(s.net(t))
    u.exp_()
    return u


def normal(s, t):
    return torch.distributions.Normal(s.net(t), 1.0)


def likelihood(out, y):
    return -out.log_prob(F.one_hot(y, 3)).mean()


def test_what_cannot_be_measured_is_told_in_one_line():
    with refusal("sparse"):
        sparse = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Flatten(), nn.Linear(18, 3))
        operator(sparse, given=torch.arange(24).view(4, 6) % 5)
    with refusal("meta device"):
        operator(mlp().to("meta"))
    with refusal("inplace"):
        operator(own(in_place))
    with refusal("the gradient differs from differences of the loss"):
        operator(own(lambda s, t: s.net(t).detach()))
    with refusal("expected an nn.Module"):
        operator(F.relu)
    with refusal("needs loss.output, target. of an output made of tensors"):
        operator(own(normal), likelihood, part="gauss_newton")


@refusal(r"write it out as F.hardtanh\(x / 6 \+ 0.5, 0, 1\)")
def test_an_operation_without_a_second_derivative_in_a_stated_graph_is_named():
    exact_blocks(between(F.hardsigmoid), X, Y)
