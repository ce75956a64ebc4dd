"""graph_metrics by every method against the exact blocks, at every scale, with calibrated
errors."""

import math
from itertools import combinations_with_replacement, pairwise, product

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import runner.curvature.graphs.by_factors as by_factors
import runner.curvature.graphs.metrics as metrics
from runner.curvature import Dag, graph_metrics, split_blocks
from runner.curvature.basics.estimate import on_sphere, student_factor
from runner.curvature.graphs.factors import _fitting
from runner.curvature.pairs.singular_values import AT_ONCE, SharedSubspaces
from tests.bench.machine import Operations
from tests.curvature.cases import ALL, X, Y, block, graph, linear, make
from tests.curvature.matrices import METRICS, exact_metrics, symmetric
from tests.curvature.oracles import blocks_of
from tests.draws import normal, seeded
from tests.errors import refusal


def network(*widths, act=nn.Tanh):
    """A sequential graph with nodes 0, 1, ... and its batch."""
    *hidden, head = pairwise(widths)
    dag = Dag.from_sequential([*(block(i, o, act) for i, o in hidden), linear(*head)])
    return dag, 2 * normal(12, widths[0]), torch.arange(12) % widths[-1]


def truth(dag, x, y, nodes):
    every = list(combinations_with_replacement(nodes, 2))
    return exact_metrics(split_blocks(dag, x, y, nodes), every)


@pytest.fixture
def no_exact_blocks(monkeypatch):
    monkeypatch.setattr(metrics, "blocks_fit", lambda *_: False)


def no_factors(monkeypatch):
    monkeypatch.setattr(metrics, "OUTPUTS", 0)


def compare(expected, *given):
    """Estimates and exact values; returns the methods."""
    found = graph_metrics(*given)
    assert list(found) == list(expected)
    for pair, name in product(found, METRICS):
        estimate, value = getattr(found[pair], name), expected[pair][name]
        undefined = math.isnan(value)
        assert math.isnan(estimate.value) == bool(estimate.reason) == undefined, (pair, name)
        near = abs(estimate.value - value) <= 5 * estimate.error + 1e-9 * abs(value)
        assert near or undefined, (pair, name)
    return {m.method for m in found.values()}


@pytest.mark.parametrize("kind, activation", ALL)
def test_every_method_agrees_with_exact_blocks(kind, activation, monkeypatch):
    case = make(kind, activation)
    expected = truth(*case.given, case.nodes)
    compare(expected, *case.given)
    monkeypatch.setattr(metrics, "blocks_fit", lambda *_: False)
    assert compare(expected, *case.given) <= {"factors", "factors, products"}
    if kind in ("chain", "diamond_cat", "attention", "convolution") and activation == "smooth":
        no_factors(monkeypatch)
        assert compare(expected, *case.given) == {"products"}


def test_piecewise_linear_networks_are_exact_without_probes():
    case = make("chain", "relu", batch=6)
    for m in graph_metrics(*case.given).values():
        assert m.method == "factors"
        assert m.R.error == m.D.error == m.gap.value == m.R.products == 0


def test_a_loss_that_is_not_convex_has_signed_factors(no_exact_blocks):
    case = make("nested_branches", "relu")
    loss = lambda o, t: torch.sin(3 * o).sum(1) + o[:, 0] * o[:, 1]  # noqa: E731
    given = Dag(case.dag.nodes.values(), loss), case.x, case.y
    compare(truth(*given, case.nodes), *given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", ["relu", "smooth"])
def test_ratios_do_not_depend_on_the_scale_of_the_loss(dtype, activation, no_exact_blocks):
    case = make("chain", activation)
    nodes = case.dag.to(dtype).nodes.values()

    def measured(scale):
        loss = lambda o, t: scale * F.cross_entropy(o, t, reduction="none")  # noqa: E731
        return graph_metrics(Dag(nodes, loss), case.x.to(dtype), case.y)

    plain = measured(1.0)
    for scale in (1e-20, 1e20):
        for pair, scaled in measured(scale).items():
            expected = plain[pair]
            assert scaled.R.value == pytest.approx(scale * expected.R.value, rel=1e-3)
            for name in ("C", "D", "gap"):
                value = getattr(expected, name).value
                assert getattr(scaled, name).value == pytest.approx(value, rel=1e-3, nan_ok=True)


def test_zero_blocks_are_nan_with_a_reason():
    dead = linear(4, 4)
    nn.init.zeros_(dead.weight)
    dag = Dag.from_sequential([linear(5, 4), dead, linear(4, 3)])
    found = graph_metrics(dag, normal(3, 5), torch.arange(3))
    zero = found["0", "0"]
    assert zero.R.value == 0 and found["1", "1"].D.value > 0
    for estimate in (zero.C, zero.D, zero.gap):
        assert math.isnan(estimate.value) and "zero" in estimate.reason


@pytest.mark.parametrize("factors", [True, False])
def test_the_error_asked_for_is_reached(no_exact_blocks, monkeypatch, factors):
    if not factors:
        no_factors(monkeypatch)
    given = *network(8, 40, 40, 3), ("0", "1")
    found = graph_metrics(*given, relative_error=0.01)
    for pair, row in truth(*given).items():
        for name, value in row.items():
            estimate = getattr(found[pair], name)
            assert estimate.error <= 0.012 * estimate.value
            assert abs(estimate.value - value) <= 0.04 * value


def test_probes_are_added_until_the_error_is_as_asked(no_exact_blocks, monkeypatch):
    """Of a node with more components than it takes probes, where the Gauss-Newton part is
    estimated, too."""
    no_factors(monkeypatch)
    given = *network(8, 500, 3), ("0",)
    ((pair, expected),) = truth(*given).items()
    few = graph_metrics(*given)[pair]
    more = graph_metrics(*given, relative_error=0.05)[pair]
    assert few.R.error > 0.05 * few.R.value
    assert 0 < more.R.error <= 0.05 * more.R.value
    assert more.R.products > few.R.products
    for found in (few, more):
        assert abs(found.R.value - expected["R"]) <= 4 * found.R.error
        assert abs(found.gap.value - expected["gap"]) <= 4 * found.gap.error


@pytest.mark.parametrize("seed", [388, 1203])
def test_signs_that_agree_on_two_components(no_exact_blocks, monkeypatch, seed):
    """Twelve probes of signs that are equal up to a factor gave R 5 % off, with error 0."""
    agreeing = lambda shape, dtype, generator: torch.ones(shape, dtype=dtype)  # noqa: E731
    monkeypatch.setattr(by_factors, "on_sphere", agreeing)
    torch.manual_seed(seed)
    dag = graph("mse", h=("input", torch.sin), out=("h", block(2, 2, nn.Tanh)))
    x = torch.tensor([[0.3, -0.2], [0.1, 0.5]], dtype=torch.float64)
    given = dag, x, torch.zeros_like(x), ("h",)
    ((pair, expected),) = truth(*given).items()
    found = graph_metrics(*given)[pair]
    assert found.R.value == pytest.approx(expected["R"], rel=1e-9)
    assert found.gap.value == pytest.approx(expected["gap"], rel=1e-9)


def test_probes_on_the_sphere_have_covariance_one_and_never_agree():
    z = on_sphere((20_000, 3), torch.float64, seeded())
    assert torch.allclose(z.norm(dim=1), torch.tensor(3**0.5).double())
    assert torch.allclose(z.T @ z / len(z), torch.eye(3).double(), atol=0.03)
    assert int(torch.linalg.matrix_rank(on_sphere((12, 2), torch.float64, seeded(1)))) == 2


def test_pairs_in_either_order_and_the_same_seed():
    case, asked = make("chain"), [("c", "a"), ("b", "b")]
    one, two = (graph_metrics(*case.given, pairs=asked) for _ in range(2))
    assert list(one) == asked and one == two
    other = graph_metrics(*case.given, pairs=[("a", "c")])
    assert other["a", "c"].R.value == pytest.approx(one["c", "a"].R.value)


@pytest.mark.parametrize("error", [None, 0.05])
def test_a_pair_and_its_transpose_may_both_be_asked_for(no_exact_blocks, error):
    settings = {"pairs": [("1", "0"), ("0", "1")], "relative_error": error, "ranks": False}
    there, back = graph_metrics(*network(60, 60, 60, 60, 3), **settings).values()
    for name in ("R", "C", "gap"):
        assert getattr(there, name).value == pytest.approx(getattr(back, name).value, rel=1e-6)
    assert there.R.error > 0


def test_mistakes_say_what_to_do():
    given = make("chain").given
    with refusal("unknown nodes"):
        graph_metrics(*given, pairs=[("a", "nowhere")])
    with refusal("not among nodes"):
        graph_metrics(*given, nodes=["a"], pairs=[("a", "b")])
    with refusal("relative_error must be positive"):
        graph_metrics(*given, relative_error=0.0)


def test_without_ranks_only_the_stable_rank_is_missing(no_exact_blocks):
    for m in graph_metrics(*make("chain").given, ranks=False).values():
        assert math.isnan(m.D.value) and m.D.reason == "not asked for" and m.R.value > 0


def test_students_factor():
    points = {1: 12.7062, 2: 4.3027, 5: 2.5706, 7: 2.3646, 15: 2.1314, 60: 2.0003}
    for freedom, point in points.items():
        assert 1.959964 * student_factor(freedom) == pytest.approx(point, rel=2e-3)


def test_probes_without_a_generator_leave_torchs_random_stream(no_exact_blocks):
    given = *network(6, 40, 40, 3), ("0",)
    before = torch.get_rng_state()
    first = graph_metrics(*given)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert graph_metrics(*given) == first


CHANGED_IN_PLACE = {
    "rectified": {"b": ("a", nn.ReLU(inplace=True)), "c": ("a b", torch.add)},
    "smooth": {"b": ("a", nn.SiLU(inplace=True)), "c": ("b a", torch.mul)},
}


@pytest.mark.parametrize("name", CHANGED_IN_PLACE)
@pytest.mark.parametrize("way", ["factors", "cheapest"])
def test_metrics_of_nodes_that_work_in_place(name, way, monkeypatch):
    """A parent that a node overwrites keeps its value for its other children."""
    if way == "factors":
        monkeypatch.setattr(metrics, "blocks_fit", lambda *_: False)
    dag = graph(a=("input", torch.sin), **CHANGED_IN_PLACE[name], out=("c", linear(6, 3)))
    compare(truth(dag, X, Y, dag.order), dag, X, Y)


def test_sweeps_take_directions_together_and_end_exactly():
    """Of a matrix with eigenvalues +-i^-0.4, whose blocks have stable ranks of 10 to 30."""
    sizes, calls, found = {"a": 90, "b": 60, "c": 40}, [], {}
    values = torch.arange(1, 191, dtype=torch.float64) ** -0.4 * normal(190).sign()
    blocks = blocks_of(symmetric(values), {v: [d] for v, d in sizes.items()})

    def apply(w, directions):
        calls.append(len(directions))
        return {v: directions @ blocks[w, v] for v in sizes}

    spaces = SharedSubspaces(apply, sizes)
    for w, d in sizes.items():
        z = normal(12, d)
        spaces.know(w, z, apply(w, z))
    calls.clear()
    every = list(combinations_with_replacement(sizes, 2))
    for _ in spaces.sweeps(found, every, 1e-8):
        pass
    assert sum(calls) >= (AT_ONCE - 1) * len(calls)
    for pair in every:
        norm = float(torch.linalg.matrix_norm(blocks[pair], 2))
        assert found[pair].value == pytest.approx(norm, rel=1e-7)


def test_directions_are_cut_into_what_fits():
    cut = [_fitting((1, 4, 16), count) for count in (1, 2, 3, 4, 8, 12, 16, 40)]
    assert cut == [1, 1, 4, 4, 4, 16, 16, 16]
    assert _fitting((16,), 3) == 16


def test_operations_of_convolutions_and_their_gradients():
    conv, x = nn.Conv2d(3, 4, 3, padding=1, bias=False), torch.randn(2, 3, 8, 8)
    for wanted in (False, True):  # without a gradient at x, and with one
        with Operations() as counted:
            conv(x.requires_grad_(wanted)).sum().backward()
        assert counted.total == (2 + wanted) * 2 * 2 * 4 * 64 * 27
    up = nn.ConvTranspose2d(4, 3, 2, stride=2, bias=False)
    with Operations() as counted, torch.no_grad():
        up(torch.randn(2, 4, 5, 5))
    assert counted.total == 2 * 2 * 4 * 25 * 3 * 2 * 2


def test_blocks_that_cost_little_more_than_probes_are_exact_unless_an_error_is_asked_for():
    given = *network(128, 128, 128, 128, 128, 10, act=nn.SiLU), ("0", "1", "2", "3")
    exact = graph_metrics(*given)["0", "1"]
    assert exact.method == "exact blocks" and exact.R.error == exact.gap.error == 0
    asked = graph_metrics(*given, relative_error=0.5)["0", "1"]
    assert asked.method == "factors, products"
    assert abs(asked.R.value - exact.R.value) <= 5 * asked.R.error
