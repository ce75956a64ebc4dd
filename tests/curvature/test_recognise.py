"""Unmodified functions and modules, traced or left to automatic differentiation: the same blocks either way."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from runner.curvature import CurvatureOperator, Dag, Node, exact_blocks, gauss_newton_blocks
from runner.curvature.exact.derivatives import evaluate
from tests.curvature.cases import (
    Case,
    X,
    Y,
    between,
    dense_gauss_newton,
    dense_hessian,
    patched,
    relative_error,
    scaled,
)
from tests.curvature.module_cases import x

torch.manual_seed(0)
LIN, OTHER, WIDE = (nn.Linear(i, o).double() for i, o in ((4, 4), (4, 4), (8, 4)))
NORM = nn.LayerNorm(4).double()
W, B = torch.randn(4, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)


class OwnBlock(nn.Module):
    """What users write."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.act = nn.Linear(4, 4), nn.LayerNorm(4), nn.SiLU()
        self.scale = 0.5

    def forward(self, h):
        return h + self.scale * self.act(self.norm(self.linear(h)))


class OwnParameters(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4))

    def forward(self, h):
        return torch.tanh(F.linear(h, self.weight, self.bias))


RECOGNISED = {
    "functional": lambda h: F.relu(NORM(LIN(h))),
    "method": lambda h: LIN(h).tanh(),
    "matmul": lambda h: torch.sigmoid(h @ W + B),
    "matmul transposed": lambda h: torch.matmul(h, W.T).relu(),
    "keyword arguments": lambda h: F.gelu(LIN(h), approximate="tanh"),
    "slope": lambda h: F.leaky_relu(LIN(h), 0.3),
    "layer_norm": lambda h: F.silu(F.layer_norm(h, (4,), B.abs(), B, 1e-3)),
    "residual": lambda h: h + 0.5 * F.silu(LIN(h)),
    "residual, other order": lambda h: torch.tanh(LIN(h)) + h,
    "residual in the middle": lambda h: torch.tanh(OTHER((lambda z: z + F.softplus(OTHER(z)))(LIN(h)))),
    "alpha": lambda h: torch.add(h, torch.tanh(LIN(h)), alpha=0.3),
    "subtraction": lambda h: torch.exp(0.1 * h) - 2,
    "twice": lambda h: torch.tanh(h + h) / 2 - B,
    "negative": lambda h: -torch.sin(h),
    "module": OwnBlock().double(),
    "module with parameters": OwnParameters().double(),
    "constant in front": lambda h: 1.5 * torch.tanh(B + h),
}

LEFT_ALONE = {
    "product": lambda h: h * torch.tanh(h),
    "normalise": lambda h: h / h.norm(dim=1, keepdim=True),
    "branch on sizes and rows": lambda h: torch.where(h.sum(1, keepdim=True) > 0, h, 2 * h),
    "stop-gradient": lambda h: torch.tanh(h) + torch.tanh(LIN(h)).detach(),
    "no_grad": None,
    "softmax": lambda h: torch.softmax(h, 1),
    "in place": lambda h: LIN(h).mul_(2).tanh(),
    "matrix constant": lambda h: h + torch.ones(1, 4, dtype=h.dtype),
    "two residuals": lambda h: torch.tanh(LIN(h)) + torch.sin(OTHER(h)),
}


def without_gradient(h):
    with torch.no_grad():
        shift = torch.tanh(LIN(h))
    return torch.tanh(h + shift)


def residual_without_gradient(h):
    with torch.no_grad():
        z = torch.tanh(LIN(h))
    return z + h


LEFT_ALONE["no_grad"] = without_gradient
LEFT_ALONE["no_grad in a residual"] = residual_without_gradient


def network(fn):
    head = nn.Sequential(nn.Linear(4, 3), nn.Tanh()).double()
    torch.manual_seed(1)
    return Dag([Node("a", ("input",), LIN), Node("b", ("a",), fn), Node("c", ("b",), fn), Node("out", ("c",), head)])


def error(dag):
    x, y = torch.randn(2, 4, dtype=torch.float64), torch.tensor([0, 2])
    return relative_error(exact_blocks(dag, x, y), dense_hessian(Case("", dag, x, y), dag.order))


@pytest.mark.parametrize("name", RECOGNISED)
def test_recognised(name):
    dag = network(RECOGNISED[name])
    assert "b" in evaluate(dag, torch.randn(2, 4, dtype=torch.float64)).structures
    assert error(dag) < 1e-10


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_left_to_automatic_differentiation(name):
    dag = network(LEFT_ALONE[name])
    assert "b" not in evaluate(dag, torch.randn(2, 4, dtype=torch.float64)).structures
    assert error(dag) < 1e-10


def test_a_branch_on_the_values_of_the_batch_mixes_its_examples():
    dag = network(lambda h: h if h.sum() > 0 else 2 * h)
    with pytest.raises(ValueError, match="'b' mixes the examples"):
        error(dag)


MERGES = {
    "sum": (lambda a, b: 0.5 * (a + b), True),
    "difference": (lambda a, b: a - 2 * b, True),
    "activated sum": (lambda a, b: torch.tanh(LIN(a + 3 * b)), True),
    "concatenation": (lambda a, b: F.silu(WIDE(torch.cat([a, b], 1))), True),
    "concatenation, last dimension": (lambda a, b: WIDE(torch.cat((a, b), dim=-1)), True),
    "swapped concatenation": (lambda a, b: WIDE(torch.cat([b, a], 1)), False),
    "product": (lambda a, b: a * b, False),
    "one of them": (lambda a, b: torch.tanh(a), False),
    "two activations": (lambda a, b: torch.tanh(a) + torch.sin(b), False),
    "activation and skip": (lambda a, b: torch.tanh(a) + b, False),
}


@pytest.mark.parametrize("name", MERGES)
def test_merges(name):
    fn, recognised = MERGES[name]
    head = nn.Linear(4, 3).double()
    dag = Dag(
        [
            Node("s", ("input",), torch.tanh),
            Node("a", ("s",), torch.sin),
            Node("b", ("s",), LIN),
            Node("m", ("a", "b"), fn),
            Node("out", ("m", "b"), lambda m, b: head(m) + b.sum(1, keepdim=True)),
        ]
    )
    assert ("m" in evaluate(dag, torch.randn(2, 4, dtype=torch.float64)).structures) == recognised
    assert error(dag) < 1e-10


def test_broadcast_sums_are_left_alone():
    dag = Dag(
        [
            Node("a", ("input",), LIN),
            Node("b", ("input",), nn.Linear(4, 1).double()),
            Node("m", ("a", "b"), lambda a, b: torch.tanh(a + b)),
            Node("out", ("m",), nn.Linear(4, 3).double()),
        ]
    )
    assert "m" not in evaluate(dag, torch.randn(2, 4, dtype=torch.float64)).structures
    assert error(dag) < 1e-10


def test_a_changed_module_is_traced_again():
    block = OwnBlock().double()
    dag = network(block)
    assert error(dag) < 1e-10
    block.act = nn.Tanh()
    block.scale = -2.0
    with torch.no_grad():
        block.linear.weight.add_(1)
    assert "b" in evaluate(dag, torch.randn(2, 4, dtype=torch.float64)).structures
    assert error(dag) < 1e-10


def test_tracing_leaves_the_module_as_it_was():
    module = OwnParameters().double()
    before = set(vars(module)), {key: value.clone() for key, value in module.state_dict().items()}
    error(network(module))
    assert set(vars(module)) == before[0]
    assert all(torch.equal(value, before[1][key]) for key, value in module.state_dict().items())


# ------------------------------------------------------------------ modules that are not their class, legal functions


class Called(nn.Linear):
    def __call__(self, t):
        return torch.sin(super().__call__(t))


NOT_THEIR_CLASS = {
    "forward of the object": lambda: patched(nn.Linear(5, 5).double(), lambda own: lambda t: torch.tanh(own(t))),
    "call of the class": lambda: Called(5, 5).double(),
    "forward of a container": lambda: patched(
        nn.Sequential(nn.Linear(5, 5)).double(), lambda own: lambda t: own(t) ** 2
    ),
}


@pytest.mark.parametrize("name", NOT_THEIR_CLASS)
def test_closed_forms_are_of_what_a_module_computes(name):
    dag = between(NOT_THEIR_CLASS[name]())
    case = Case("", dag, X, Y)
    assert relative_error(exact_blocks(dag, X, Y), dense_hessian(case, dag.order)) < 1e-10
    assert relative_error(gauss_newton_blocks(dag, X, Y), dense_gauss_newton(case, dag.order)) < 1e-10


def test_a_hook_for_all_modules_is_part_of_them():
    handle = register_module_forward_hook(lambda m, _, out: out.sin() if isinstance(m, nn.Linear) else None)
    try:
        dag = between(nn.Tanh())
        assert relative_error(exact_blocks(dag, X, Y), dense_hessian(Case("", dag, X, Y), dag.order)) < 1e-10
    finally:
        handle.remove()


def test_a_small_change_of_a_traced_constant_is_seen():
    module = scaled()
    dag = between(module, torch.float32)
    old = exact_blocks(dag, X.float(), Y)["h", "h"]
    module.scale = 1.0005
    new = exact_blocks(dag, X.float(), Y)["h", "h"]
    double = Dag([Node(n.name, n.parents, n.fn) for n in dag.nodes.values()]).to(torch.float64)
    true = exact_blocks(double, X, Y)["h", "h"]
    assert float((new.double() - true).norm() / true.norm()) < 1e-5
    assert float((new - old).norm() / old.norm()) > 3e-4


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
    return Dag([Node("a", ("input",), torch.tanh), Node("out", ("a", "input"), fn)], loss="mse")


LEGAL = {
    "keyword list": two(lambda a, b: torch.sin(torch.cat(tensors=[a, b], dim=1))),
    "stack": two(lambda *h: torch.sin(torch.stack(h, 1).sum(1))),
    "in place function": between(lambda t: t.mul_(2).sin(), loss="mse"),
    "in place on a used parent": Dag(
        [
            Node("a", ("input",), lambda t: torch.tanh(t)),
            Node("b", ("a",), nn.Softplus()),
            Node("c", ("b",), nn.SiLU(inplace=True)),
            Node("out", ("c", "b"), lambda c, b: c * b),
        ],
        loss="mse",
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


class Transposed(nn.Module):
    def forward(self, t):
        return t.unflatten(1, (2, 3)).transpose(1, 2)


def test_outputs_that_are_no_contiguous_memory_or_empty():
    dag = Dag([Node("a", ("input",), torch.sin), Node("out", ("a",), Transposed())], "mse")
    y = x(4, 3, 2)
    found, expected = CurvatureOperator(dag, X, y, part="gauss_newton"), gauss_newton_blocks(dag, X, y)
    assert relative_error({p: found.block(*p).dense() for p in expected}, expected) < 1e-12
    parts = [Node("a", ("input",), torch.sin), Node("none", ("a",), lambda t: t[:, :0])]
    dag = Dag([*parts, Node("out", ("none", "a"), lambda n, a: torch.cat([n, a], 1).tanh())], "mse")
    expected = dense_hessian(Case("", dag, X, X), ("a", "out"))
    assert relative_error(exact_blocks(dag, X, X), expected) < 1e-12
