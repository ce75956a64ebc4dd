"""Unmodified functions and modules, in closed form or left to automatic differentiation: the same
blocks either way."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from runner.curvature import CurvatureOperator, Dag, exact_blocks, gauss_newton_blocks
from runner.curvature.graphs.dag import Residual
from runner.curvature.graphs.derivatives import evaluate
from runner.models.network import SumMerge
from tests.curvature.cases import (
    Case,
    Own,
    X,
    Y,
    between,
    dense_gauss_newton,
    dense_hessian,
    graph,
    patched,
    relative_error,
)
from tests.curvature.module_cases import x
from tests.draws import normal
from tests.errors import refusal

torch.manual_seed(0)
LIN, OTHER, WIDE = (nn.Linear(i, o).double() for i, o in ((4, 4), (4, 4), (8, 4)))
NORM = nn.LayerNorm(4).double()
W, B = normal(4, 4), normal(4)


def own_block(m, h):
    """What users write."""
    return h + m.scale * m.act(m.norm(m.linear(h)))


OWN_BLOCK = Own(own_block, linear=nn.Linear(4, 4), norm=nn.LayerNorm(4), act=nn.SiLU(), scale=0.5)
OWN_PARAMETERS = Own(
    lambda m, h: torch.tanh(F.linear(h, m.weight, m.bias)),
    weight=nn.Parameter(torch.randn(4, 4)),
    bias=nn.Parameter(torch.randn(4)),
)


def without_gradient(h):
    with torch.no_grad():
        return torch.tanh(LIN(h))


ACTIVATIONS = [
    nn.GELU(),
    nn.GELU("tanh"),
    nn.Softplus(),
    nn.Tanh(),
    nn.Sigmoid(),
    nn.ELU(),
    nn.Mish(),
]
ACTIVATIONS += [nn.LeakyReLU(), nn.Hardtanh()]
RECOGNISED = {
    "norm first": nn.Sequential(NORM, nn.GELU()),
    "residual of a residual": Residual(
        nn.Sequential(Residual(nn.Sequential(LIN, nn.SiLU())), nn.Tanh()), 2.0
    ),
    "scaled residual inside": nn.Sequential(
        LIN, Residual(nn.Sequential(NORM, OTHER, nn.Tanh()), 0.7), nn.SiLU()
    ),
    "nothing": nn.Sequential(),
    "no bias": nn.Sequential(
        nn.Linear(4, 4, bias=False), nn.LayerNorm(4, bias=False), nn.Softplus()
    ).double(),
    "plain norm": nn.Sequential(nn.LayerNorm(4, elementwise_affine=False), nn.Tanh()),
    **{str(act): nn.Sequential(LIN, NORM, act, OTHER, nn.Tanh()) for act in ACTIVATIONS},
}

LEFT_ALONE = {
    "functional": lambda h: F.relu(NORM(LIN(h))),
    "matmul": lambda h: torch.sigmoid(h @ W + B),
    "residual in the middle": lambda h: torch.tanh(
        OTHER((lambda z: z + F.softplus(OTHER(z)))(LIN(h)))
    ),
    "module": OWN_BLOCK.double(),
    "module with parameters": OWN_PARAMETERS.double(),
    "product": lambda h: h * torch.tanh(h),
    "normalise": lambda h: h / h.norm(dim=1, keepdim=True),
    "branch on sizes and rows": lambda h: torch.where(h.sum(1, keepdim=True) > 0, h, 2 * h),
    "stop-gradient": lambda h: torch.tanh(h) + torch.tanh(LIN(h)).detach(),
    "no_grad": lambda h: torch.tanh(h + without_gradient(h)),
    "no_grad in a residual": lambda h: without_gradient(h) + h,
    "softmax": lambda h: torch.softmax(h, 1),
    "in place": lambda h: LIN(h).mul_(2).tanh(),
}


def network(fn):
    head = nn.Sequential(nn.Linear(4, 3), nn.Tanh()).double()
    torch.manual_seed(1)
    return Dag.from_sequential([LIN, fn, fn, head], names=["a", "b", "c", "out"])


def error(dag):
    x, y, nodes = (
        normal(2, 4),
        torch.tensor([0, 2]),
        ("input", *dag.order),
    )
    return relative_error(exact_blocks(dag, x, y, nodes), dense_hessian(Case("", dag, x, y), nodes))


def recognised(dag, node):
    return node in evaluate(dag, normal(2, 4)).structures


@pytest.mark.parametrize("name", [*RECOGNISED, *LEFT_ALONE])
def test_recognised_or_left_to_automatic_differentiation(name):
    dag = network({**RECOGNISED, **LEFT_ALONE}[name])
    assert recognised(dag, "b") == (name in RECOGNISED)
    assert error(dag) < 1e-10


def test_a_branch_on_the_values_of_the_batch_mixes_its_examples():
    dag = network(lambda h: h if h.sum() > 0 else 2 * h)
    with refusal("'b' mixes the examples"):
        error(dag)


MERGES = {
    "activated sum": lambda a, b: torch.tanh(LIN(a + 3 * b)),
    "concatenation": lambda a, b: F.silu(WIDE(torch.cat([a, b], 1))),
    "product": lambda a, b: a * b,
    "one of them": lambda a, b: torch.tanh(a),
    "activation and skip": lambda a, b: torch.tanh(a) + b,
}


@pytest.mark.parametrize("name", MERGES)
def test_merges(name):
    head = nn.Linear(4, 3).double()
    dag = graph(
        s=("input", torch.tanh),
        a=("s", torch.sin),
        b=("s", LIN),
        m=("a b", MERGES[name]),
        out=("m b", lambda m, b: head(m) + b.sum(1, keepdim=True)),
    )
    assert error(dag) < 1e-10


# ------------------------------------------------ modules that are not their class, legal functions


class Called(nn.Linear):
    def __call__(self, t):
        return torch.sin(super().__call__(t))


class Doubled(nn.Linear):
    def forward(self, t):
        return 2 * super().forward(t) ** 2


def hooked(module):
    module.register_forward_hook(lambda module, inputs, output: torch.sin(output))
    return module


NOT_THEIR_CLASS = {
    "forward of the object": lambda: patched(
        nn.Linear(5, 5).double(), lambda own: lambda t: torch.tanh(own(t))
    ),
    "call of the class": lambda: Called(5, 5).double(),
    "forward of a subclass": lambda: Doubled(5, 5).double(),
    "hook": lambda: hooked(nn.Linear(5, 5).double()),
    "hook of a composite": lambda: hooked(Residual(nn.Linear(5, 5).double())),
    "hook of a module that states its structure": lambda: hooked(SumMerge()),
    "in place": lambda: nn.Sequential(nn.Linear(5, 5), nn.ReLU(inplace=True)).double(),
    "forward of a container": lambda: patched(
        nn.Sequential(nn.Linear(5, 5)).double(), lambda own: lambda t: own(t) ** 2
    ),
}


@pytest.mark.parametrize("name", NOT_THEIR_CLASS)
def test_closed_forms_are_of_what_a_module_computes(name):
    dag = between(NOT_THEIR_CLASS[name]())
    assert "a" not in evaluate(dag, X).structures
    case = Case("", dag, X, Y)
    assert relative_error(exact_blocks(dag, X, Y), dense_hessian(case, dag.order)) < 1e-10
    assert (
        relative_error(gauss_newton_blocks(dag, X, Y), dense_gauss_newton(case, dag.order)) < 1e-10
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_part_without_gradient_counts_as_constant_in_half_precision(dtype):
    def part(t):
        with torch.no_grad():
            moved = torch.tanh(t)
        return moved + t

    expected = exact_blocks(between(part), X, Y)["h", "h"]
    found = exact_blocks(between(part, dtype), X.to(dtype), Y)["h", "h"].double()
    assert float((found - expected).norm() / expected.norm()) < 0.05


def two(fn):
    return graph("mse", a=("input", torch.tanh), out=("a input", fn))


LEGAL = {
    "keyword list": two(lambda a, b: torch.sin(torch.cat(tensors=[a, b], dim=1))),
    "stack": two(lambda *h: torch.sin(torch.stack(h, 1).sum(1))),
    "in place function": between(lambda t: t.mul_(2).sin(), loss="mse"),
    "in place on a used parent": graph(
        "mse",
        a=("input", lambda t: torch.tanh(t)),
        b=("a", nn.Softplus()),
        c=("b", nn.SiLU(inplace=True)),
        out=("c b", lambda c, b: c * b),
    ),
}


@pytest.mark.parametrize("name", LEGAL)
def test_legal_networks_are_measured(name):
    dag = LEGAL[name]
    y = torch.zeros_like(dag.forward(X)[dag.output])
    expected = dense_hessian(Case("", dag, X, y), dag.order)
    assert relative_error(exact_blocks(dag, X, y), expected) < 1e-10
    operator = CurvatureOperator(dag, X, y)
    assert relative_error({p: operator.block(*p).dense() for p in expected}, expected) < 1e-10


def test_outputs_that_are_no_contiguous_memory_or_empty():
    dag = Dag.from_sequential([torch.sin, lambda t: t.unflatten(1, (2, 3)).transpose(1, 2)], "mse")
    y = x(4, 3, 2)
    found, expected = (
        CurvatureOperator(dag, X, y, part="gauss_newton"),
        gauss_newton_blocks(dag, X, y),
    )
    assert relative_error({p: found.block(*p).dense() for p in expected}, expected) < 1e-12
    out = ("none a", lambda n, a: torch.cat([n, a], 1).tanh())
    dag = graph("mse", a=("input", torch.sin), none=("a", lambda t: t[:, :0]), out=out)
    expected = dense_hessian(Case("", dag, X, X), ("a", "out"))
    assert relative_error(exact_blocks(dag, X, X), expected) < 1e-12
