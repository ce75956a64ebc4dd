"""Unmodified functions and modules, in closed form or left to automatic differentiation: the same
blocks either way."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from runner.curvature import Dag, exact_blocks, gauss_newton_blocks
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
    linear,
    node_operator,
    patched,
    relative_error,
)
from tests.curvature.oracles import relative
from tests.draws import normal
from tests.errors import refusal

torch.manual_seed(0)
LIN, OTHER, WIDE = linear(4, 4), linear(4, 4), linear(8, 4)
NORM = nn.LayerNorm(4).double()
W, B = normal(4, 4), normal(4)


def assert_exact(dag, x, y, nodes=None, oracle=dense_hessian, measure=exact_blocks):
    nodes = nodes or dag.order
    expected = oracle(Case("", dag, x, y), nodes)
    assert relative_error(measure(dag, x, y, nodes), expected) < 1e-10
    return expected


def sequence(*layers):
    return nn.Sequential(*layers).double()


PLAIN = [nn.GELU(), nn.GELU("tanh"), nn.Softplus(), nn.Tanh(), nn.Sigmoid(), nn.ELU(), nn.Mish()]
RECOGNISED = {
    "norm first": sequence(NORM, nn.GELU()),
    "residual of a residual": Residual(
        sequence(Residual(sequence(LIN, nn.SiLU())), nn.Tanh()), 2.0
    ),
    "scaled residual inside": sequence(
        LIN, Residual(sequence(NORM, OTHER, nn.Tanh()), 0.7), nn.SiLU()
    ),
    "nothing": sequence(),
    "no bias": sequence(nn.Linear(4, 4, bias=False), nn.LayerNorm(4, bias=False), nn.Softplus()),
    "plain norm": sequence(nn.LayerNorm(4, elementwise_affine=False), nn.Tanh()),
}
for act in (*PLAIN, nn.LeakyReLU(), nn.Hardtanh()):
    RECOGNISED[str(act)] = sequence(LIN, NORM, act, OTHER, nn.Tanh())


def own_block(m, h):
    """What users write."""
    return h + m.scale * m.act(m.norm(m.linear(h)))


OWN_BLOCK = Own(own_block, linear=nn.Linear(4, 4), norm=nn.LayerNorm(4), act=nn.SiLU(), scale=0.5)
OWN_PARAMETERS = Own(
    lambda m, h: torch.tanh(F.linear(h, m.weight, m.bias)),
    weight=nn.Parameter(W),
    bias=nn.Parameter(B),
)


def without_gradient(h):
    with torch.no_grad():
        return torch.tanh(LIN(h))


def residual_in_the_middle(h):
    z = LIN(h)
    return torch.tanh(OTHER(z + F.softplus(OTHER(z))))


LEFT_ALONE = {
    "functional": lambda h: F.relu(NORM(LIN(h))),
    "matmul": lambda h: torch.sigmoid(h @ W + B),
    "residual in the middle": residual_in_the_middle,
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
    head = sequence(nn.Linear(4, 3), nn.Tanh())
    torch.manual_seed(1)
    return Dag.from_sequential([LIN, fn, fn, head])


def assert_exact_with_the_input(dag):
    assert_exact(dag, normal(2, 4), torch.tensor([0, 2]), ("input", *dag.order))


@pytest.mark.parametrize("name", [*RECOGNISED, *LEFT_ALONE])
def test_recognised_or_left_to_automatic_differentiation(name):
    dag = network({**RECOGNISED, **LEFT_ALONE}[name])
    assert ("1" in evaluate(dag, normal(2, 4)).structures) == (name in RECOGNISED)
    assert_exact_with_the_input(dag)


@refusal("'1' mixes the examples")
def test_a_branch_on_the_values_of_the_batch_mixes_its_examples():
    exact_blocks(network(lambda h: h if h.sum() > 0 else 2 * h), normal(2, 4), Y[:2])


MERGES = {
    "activated sum": lambda a, b: torch.tanh(LIN(a + 3 * b)),
    "concatenation": lambda a, b: F.silu(WIDE(torch.cat([a, b], 1))),
    "product": lambda a, b: a * b,
    "one of them": lambda a, b: torch.tanh(a),
    "activation and skip": lambda a, b: torch.tanh(a) + b,
}


@pytest.mark.parametrize("name", MERGES)
def test_merges(name):
    head = linear(4, 3)
    dag = graph(
        s=("input", torch.tanh),
        a=("s", torch.sin),
        b=("s", LIN),
        m=("a b", MERGES[name]),
        out=("m b", lambda m, b: head(m) + b.sum(1, keepdim=True)),
    )
    assert_exact_with_the_input(dag)


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
    "forward of the object": patched(linear(5, 5), lambda own: lambda t: torch.tanh(own(t))),
    "call of the class": Called(5, 5).double(),
    "forward of a subclass": Doubled(5, 5).double(),
    "hook": hooked(linear(5, 5)),
    "hook of a composite": hooked(Residual(linear(5, 5))),
    "hook of a module that states its structure": hooked(SumMerge()),
    "in place": sequence(nn.Linear(5, 5), nn.ReLU(inplace=True)),
    "forward of a container": patched(sequence(nn.Linear(5, 5)), lambda own: lambda t: own(t) ** 2),
}


@pytest.mark.parametrize("name", NOT_THEIR_CLASS)
def test_closed_forms_are_of_what_a_module_computes(name):
    dag = between(NOT_THEIR_CLASS[name])
    assert "a" not in evaluate(dag, X).structures
    assert_exact(dag, X, Y)
    assert_exact(dag, X, Y, None, dense_gauss_newton, gauss_newton_blocks)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_part_without_gradient_counts_as_constant_in_half_precision(dtype):
    def part(t):
        with torch.no_grad():
            moved = torch.tanh(t)
        return moved + t

    expected = exact_blocks(between(part), X, Y)["h", "h"]
    found = exact_blocks(between(part, dtype), X.to(dtype), Y)["h", "h"].double()
    assert relative(found, expected) < 0.05


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


def products(dag, x, y, part="hessian"):
    """All blocks by an operator."""
    operator = node_operator(dag, x, y, part=part)
    return {(v, w): operator.block(v, w).dense() for v in dag.order for w in dag.order}


@pytest.mark.parametrize("name", LEGAL)
def test_legal_networks_are_measured(name):
    dag = LEGAL[name]
    y = torch.zeros_like(dag.forward(X)[dag.output])
    expected = assert_exact(dag, X, y)
    assert relative_error(products(dag, X, y), expected) < 1e-10


def test_a_node_may_come_to_work_in_place_between_measurements():
    dag = LEGAL["in place on a used parent"]
    y = torch.zeros_like(X)
    for inplace in (False, True):
        dag.nodes["c"].fn.inplace = inplace
        assert relative_error(products(dag, X, y), assert_exact(dag, X, y)) < 1e-10


def test_outputs_that_are_no_contiguous_memory_or_empty():
    dag = Dag.from_sequential([torch.sin, lambda t: t.unflatten(1, (2, 3)).transpose(1, 2)], "mse")
    y = normal(4, 3, 2)
    expected = gauss_newton_blocks(dag, X, y)
    assert relative_error(products(dag, X, y, "gauss_newton"), expected) < 1e-12
    out = ("none a", lambda n, a: torch.cat([n, a], 1).tanh())
    dag = graph("mse", a=("input", torch.sin), none=("a", lambda t: t[:, :0]), out=out)
    assert_exact(dag, X, X, ("a", "out"))
