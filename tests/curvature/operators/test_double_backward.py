"""Products of modules as users write them, against double backward with torch alone.

Every loss with every kind of output and every matrix, over modules and kinds of input in turn, a
quarter of them every day: right to 1e-8, or refused in one line where REFUSED says so, and in no
other case.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from runner.curvature import LayerOperator, ParameterOperator
from tests.curvature.cases import Own
from tests.curvature.oracles import arguments, factored, relative, shifted, twice
from tests.draws import normal
from tests.errors import refusal

B, K = 4, 3
DEVICE = "cpu"
"""Of modules, data and vectors; test_cuda.py has another one."""


def x(*shape):
    return normal(*shape).to(DEVICE)


# ----------------------------------------------------- modules: three calls, first, second and head


def run(net, t):
    """Logits (B, ..., K) and a hidden tensor from x."""
    h = net.hidden(net, t)
    return net.head(h), h


def core(hidden, **parts):
    usual = {"first": nn.Linear(2, 3), "second": nn.Linear(3, 3), "head": nn.Linear(3, K)}
    return Own(run, hidden=hidden, **(usual | parts))


def convolved(m, t):
    return torch.tanh(m.second(F.gelu(m.first(t.unsqueeze(1)).mean(2))))


def recurrent(m, t):
    return m.second(m.first(t).unsqueeze(1).expand(-1, 2, -1))[0][:, -1]


def spectral(m, t):
    spectrum = torch.fft.rfft(torch.tanh(m.second(m.first(t))))
    return torch.fft.irfft(spectrum * m.filter[0], n=3)


def causal(m, t):
    h = m.first(t)
    q, k, v = m.second(m.norm(h)).chunk(3, -1)
    return h + F.scaled_dot_product_attention(q, k, v, is_causal=True)


def language():
    """Tied embeddings with a row for padding, LayerNorm, causal attention, logits of all tokens."""
    parts = {"first": nn.Embedding(K, 3, padding_idx=0), "second": nn.Linear(3, 9)}
    module = core(causal, **parts, norm=nn.LayerNorm(3), head=nn.Linear(3, K, bias=False))
    nn.init.uniform_(module.norm.weight, 0.5, 1.5)
    module.head.weight = module.first.weight
    return module


def complex_filter():
    """After an odd number of parameters."""
    return nn.ParameterList([nn.Parameter(torch.randn(2, dtype=torch.complex64))])


MODULES = {
    "Core": lambda: core(lambda m, t: torch.tanh(m.second(F.silu(m.first(t))))),
    # piecewise linear, without a second derivative in torch
    "Hard": lambda: core(lambda m, t: F.hardsigmoid(m.second(torch.sin(m.first(t))))),
    "Convolution": lambda: core(convolved, first=nn.Conv1d(1, 3, 2)),
    "Recurrent": lambda: core(recurrent, second=nn.GRU(3, 3, batch_first=True)),
    "Spectral": lambda: core(spectral, filter=complex_filter()),
    "Language": language,
}


# ------------------------------------------------------- kinds of output, and how a loss reads them


@dataclass
class Output:
    logits: Tensor
    hidden: Tensor | None = None
    loss: Tensor | None = None


class Pair(NamedTuple):
    logits: Tensor
    hidden: Tensor


class Ordered(OrderedDict):
    """Fields by name and by key, as the outputs of language models."""

    def __init__(self, **fields):
        super().__init__(fields)
        self.__dict__.update(fields)


class Kind(NamedTuple):
    """make: an output of (logits, hidden); tensors: those that the loss reads; join: what it makes
    of them."""

    make: Callable[[Tensor, Tensor], Any]
    tensors: Callable[[Any], tuple[Tensor, ...]]
    join: Callable[..., Tensor] = lambda f: f

    def read(self, output):
        return self.join(*self.tensors(output))


def categorical(f, h):
    return torch.distributions.Categorical(logits=f)


OUTPUTS = {
    "tensor": Kind(lambda f, h: f, lambda out: (out,)),
    "tuple": Kind(lambda f, h: (None, f, h), lambda out: (out[1],)),
    "nested": Kind(lambda f, h: {"a": [h, {"f": f}], "b": "name"}, lambda out: (out["a"][1]["f"],)),
    "named": Kind(Pair, lambda out: (out.logits,)),
    "dataclass": Kind(Output, lambda out: (out.logits,)),
    "ordered": Kind(
        lambda f, h: Ordered(logits=f, hidden=h), lambda out: ((out.logits + out["logits"]) / 2,)
    ),
    "categorical": Kind(categorical, lambda out: (out.logits,)),
    "several": Kind(Pair, lambda out: (out.logits, out.hidden), lambda f, h: f + h.sin()),
}


# ------------------------------------------------------ losses of f (B, ..., K) and labels (B, ...)


def rows(f, t, **options):
    return F.cross_entropy(f.flatten(0, -2), t.flatten(), **options)


def binary(f, t):
    return F.binary_cross_entropy_with_logits(f, F.one_hot(t, K).double())


WEIGHTS = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)
LOSSES = {
    "cross entropy": rows,
    "one each": lambda f, t: rows(f, t, reduction="none"),
    "smoothed": lambda f, t: rows(f, t, label_smoothing=0.2),
    "nll": lambda f, t: F.nll_loss(f.flatten(0, -2).log_softmax(1), t.flatten()),
    "ignored": lambda f, t: rows(f, t.masked_fill(t == 2, -100)),
    "weighted": lambda f, t: rows(f, t, weight=WEIGHTS),
    "focal": lambda f, t: rows(f, t, reduction="none").square().mean(),
    "squared": lambda f, t: F.mse_loss(f, F.one_hot(t, K).double()),
    "binary": binary,
    "margin": lambda f, t: F.multi_margin_loss(f.flatten(0, -2), t.flatten(), p=2),
}
FISHER = ("cross entropy", "one each", "nll", "ignored", "squared", "binary")
"""Minus the logarithm of a density in natural parameters, up to a factor."""


# ------------------------------------------------------------------ kinds of input


@dataclass
class Cache:
    """What a language model keeps of the tokens it has seen: every call makes it longer."""

    seen: list[Tensor] = field(default_factory=list)


@dataclass
class Batch:
    t: Tensor
    scale: float = 1.0


def scaled(net, t, scale):
    f, h = net(t)
    return scale * f, scale * h


def of_cache(net, t, cache):
    cache.seen.append(t)
    f, h = net(t)
    return f * len(cache.seen), h


def in_place(net, t):
    return net(t.add_(1).sub_(0.5) if t.is_floating_point() else t.add_(1).remainder_(K))


class Given(NamedTuple):
    tree: Callable[[Tensor], Any]
    run: Callable[..., tuple[Tensor, Tensor]]


INPUTS = {
    "tensor": Given(lambda t: t, lambda net, t: net(t)),
    "keywords": Given(lambda t: {"t": t, "mask": None}, lambda net, t, mask: net(t)),
    "both": Given(lambda t: ((t,), {"scale": 0.7}), scaled),
    "dataclass": Given(lambda t: Batch(t, 0.5), lambda net, b: scaled(net, b.t, b.scale)),
    "cache": Given(lambda t: (t, Cache()), of_cache),
    "in place": Given(lambda t: t, in_place),
}


# ------------------------------------------------------------------ the cases and their truth


@dataclass
class Case:
    module: nn.Module
    given: Any
    target: Tensor
    kind: Kind
    name: str
    """Of the loss."""

    def of(self, f, target):
        return LOSSES[self.name](f, target)

    def loss(self, output, target):
        return self.of(self.kind.read(output), target)

    def run(self, parameters):
        with sdpa_kernel(SDPBackend.MATH), torch.backends.cudnn.flags(enabled=False):
            return functional_call(self.module, parameters, *arguments(copy.deepcopy(self.given)))

    @cached_property
    def leaves(self):
        """The parameters, complex ones as pairs of real numbers."""
        found = {}
        for name, p in self.module.named_parameters():
            real = torch.view_as_real(p) if p.is_complex() else p
            found[name] = real.detach().clone().requires_grad_()
        return found

    def output(self):
        parameters = dict(self.leaves)
        for name, p in self.module.named_parameters():
            if p.is_complex():
                parameters[name] = torch.view_as_complex(parameters[name])
        return self.run(parameters)

    def product(self, part, v):
        kind, wrt = self.kind, list(self.leaves.values())
        if part == "hessian":
            return twice(self.loss(self.output(), self.target).mean(), wrt, v)
        if part == "gauss_newton":

            def curvature(leaves, tangents):
                return twice(self.of(kind.join(*leaves), self.target).mean(), leaves, tangents)

            return factored(kind.tensors(self.output()), wrt, v, curvature)

        def curvature(leaves, tangents):
            image = self.expected(leaves[0].detach()) @ tangents[0].flatten()
            return [image.view_as(leaves[0])]

        return factored((kind.read(self.output()),), wrt, v, curvature)

    def expected(self, at):
        """E[g g^T] of the loss of each row, over targets of the model's distribution; means as the
        loss takes them."""
        labels = self.target.flatten()
        counted = labels != 2 if self.name == "ignored" else labels >= 0
        blocks = []
        for row, counts in zip(at.flatten(0, -2), counted, strict=True):
            blocks.append(expected_of_row(row, self.name) * counts / counted.sum())
        return torch.block_diag(*blocks)


def expected_of_row(row, name):
    if name == "squared":
        return 2 / K * torch.eye(K).to(row)  # of a normal distribution with variance 1 / 2
    if name == "binary":
        p = torch.sigmoid(row)
        return torch.diag(p * (1 - p) ** 2 + (1 - p) * p**2) / K
    p = row.softmax(0)
    scores = p - torch.eye(K).to(p)
    return sum(p[y] * torch.outer(scores[y], scores[y]) for y in range(K))


def case(module, output, loss, given):
    torch.manual_seed(0)
    net, kind, inputs = MODULES[module](), OUTPUTS[output], INPUTS[given]

    def wrapped(m, *args, **kwargs):
        return kind.make(*inputs.run(m.core, *args, **kwargs))

    made = Own(wrapped, core=net).eval()
    for p in made.parameters():
        p.data = p.data.to(torch.complex128 if p.is_complex() else torch.float64)
    made.to(DEVICE)
    shape = (B, 2) if module == "Language" else (B,)
    target = torch.arange(B * len(shape), device=DEVICE).view(shape).remainder(K)
    t = target.flip(0) if module == "Language" else x(B, 2)
    return Case(made, inputs.tree(t), target, kind, loss)


PARTS = ("hessian", "gauss_newton", "activations")


def refused(output, part):
    """A Gauss-Newton matrix of an object that torch cannot open."""
    return part == "gauss_newton" and output == "categorical"


def cases():
    found = []
    modules, inputs = list(MODULES), list(INPUTS)
    for i, (output, loss, part) in enumerate(product(OUTPUTS, LOSSES, PARTS)):
        found.append((modules[i // 3 % 6], output, loss, inputs[(i // 3 + i // 18) % 6], part))
    return found


def every_day(output, loss, part):
    """A quarter of the cases, with every pair of output and loss, of output and part, and of loss
    and part."""
    return (list(OUTPUTS).index(output) + list(LOSSES).index(loss) + PARTS.index(part)) % 4 == 0


CASES = cases()
MARKED = [
    pytest.param(*c, id="-".join(c), marks=() if every_day(*c[1:3], c[4]) else pytest.mark.slow)
    for c in CASES
]


@pytest.mark.parametrize("module, output, loss, given, part", MARKED)
def test_products_are_right_or_refused(module, output, loss, given, part, monkeypatch):
    made = case(module, output, loss, given)
    before = copy.deepcopy(made.given)
    measure = activations if part == "activations" else parameters
    if refused(output, part):
        with refusal(r": |expected"):
            measure(made, part, monkeypatch)
    else:
        found, expected = measure(made, part, monkeypatch)
        assert relative(found, expected) <= 1e-8, "a wrong number"
        assert float(expected.norm()) > 1e-8
    assert same(made.given, before), "the user's batch has changed"


def same(a, b):
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, tuple):
        return all(map(same, a, b))
    if isinstance(a, Batch):
        return same(a.t, b.t)
    return not isinstance(a, Cache) or len(a.seen) == len(b.seen)


def joined(tensors, names):
    return torch.cat([tensors[name].flatten() for name in names])


def parameters(made, part, monkeypatch, oracle=None):
    operator = ParameterOperator(made.module, made.loss, [(made.given, made.target)], part=part)
    v, names = {k: x(*p.shape) for k, p in made.leaves.items()}, operator.layout.parameters
    found = operator @ joined(v, names)
    differentiable(monkeypatch)
    images = made.product(oracle or part, list(v.values()))
    return found, joined(dict(zip(made.leaves, images, strict=True)), names)


@pytest.mark.parametrize("loss", FISHER)
def test_the_gauss_newton_matrix_is_the_fisher_matrix_of_these_losses(loss, monkeypatch):
    made = case("Core", "tensor", loss, "tensor")
    found, expected = parameters(made, "gauss_newton", monkeypatch, oracle="fisher")
    assert relative(found, expected) <= 1e-8


def margin(f, t, p):
    own = F.one_hot(t, K).bool()
    losses = (1 - f[own].unsqueeze(1) + f).clamp(min=0) ** p
    return (losses.masked_fill(own, 0).sum(1) / K).mean()


def differentiable(monkeypatch):
    """Functions without a second derivative in torch, written with operations that have one."""
    monkeypatch.setattr(F, "hardsigmoid", lambda t: torch.clamp(t / 6 + 0.5, 0, 1))
    monkeypatch.setattr(F, "multi_margin_loss", margin)


def activations(made, part, monkeypatch):
    """Of e added to the outputs of `second` and `head` for every example."""
    names = ["core.second", "core.head"]
    picks = dict.fromkeys(names)
    if isinstance(made.module.core.second, nn.GRU):
        picks["core.second"] = "0"
    operator = LayerOperator(made.module, made.loss, (made.given, made.target), picks)
    z = {v: x(1, operator.sizes[v]) for v in names}
    found = operator.apply(z)
    differentiable(monkeypatch)
    shifts = {}

    def hook(name):
        def shift(t):
            return shifts.setdefault(name, torch.zeros_like(t[:1], requires_grad=True))

        return lambda _, __, out: shifted(out, shift)

    handles = [made.module.get_submodule(v).register_forward_hook(hook(v)) for v in names]
    value = made.loss(made.run({}), made.target).mean()
    for handle in handles:
        handle.remove()
    images = twice(value, list(shifts.values()), [z[v].view_as(e) for v, e in shifts.items()])
    return joined(found, names), joined(dict(zip(shifts, images, strict=True)), names)
