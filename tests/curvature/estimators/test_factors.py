"""inter_layer_metrics by every method against the exact blocks, at every scale, with calibrated
errors."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import runner.curvature.estimators.by_factors as by_factors
import runner.curvature.estimators.pairs as pairs
from runner.curvature import Dag, Node, inter_layer_metrics, split_blocks
from runner.curvature.estimators.estimate import on_sphere, student
from runner.curvature.estimators.factors import FEW, _fitting
from runner.curvature.estimators.singular_values import SharedSubspaces
from runner.curvature.function.modes import Operations
from tests.curvature.cases import ALL, Case, X, Y, graph, linear, make
from tests.curvature.oracles import blocks_of
from tests.draws import normal, seeded
from tests.errors import refusal

VALUES = ("R", "C", "D", "gap")


def truth(dag, x, y, nodes):
    split = split_blocks(dag, x, y, nodes)
    r = {pair: float(b.norm()) for pair, b in split.total.items()}
    found = {}
    for i, v in enumerate(nodes):
        for w in nodes[i:]:
            s = torch.linalg.svdvals(split.total[v, w])
            gauss_newton = float(split.gauss_newton[v, w].norm())
            found[v, w] = {
                "R": r[v, w],
                "C": r[v, w] / math.sqrt(r[v, v] * r[w, w]) if r[v, v] * r[w, w] > 0 else math.nan,
                "D": float(s.square().sum() / s[0] ** 2) if s[0] > 0 else math.nan,
                "gap": float(split.tensor[v, w].norm()) / gauss_newton
                if gauss_newton > 0
                else math.nan,
            }
    return found


@pytest.fixture
def no_exact_blocks(monkeypatch):
    monkeypatch.setattr(pairs, "exact_price", lambda *_: math.inf)


def compare(case, expected):
    found = inter_layer_metrics(*case.given, case.nodes, generator=seeded(1))
    assert list(found) == list(expected)
    for pair, row in expected.items():
        for name in VALUES:
            estimate, value = getattr(found[pair], name), row[name]
            assert math.isnan(estimate.value) == math.isnan(value), (pair, name, estimate, value)
            assert bool(estimate.reason) == math.isnan(estimate.value)
            if not math.isnan(value):
                assert abs(estimate.value - value) <= 5 * estimate.error + 1e-9 * abs(value), (
                    pair,
                    name,
                )
    return {m.method for m in found.values()}


@pytest.mark.parametrize("graph, activation", ALL)
def test_every_method_agrees_with_exact_blocks(graph, activation, monkeypatch):
    case = make(graph, activation)
    expected = truth(*case.given, case.nodes)
    compare(case, expected)
    monkeypatch.setattr(pairs, "exact_price", lambda *_: math.inf)
    assert compare(case, expected) <= {"factors", "factors, products"}
    if graph in ("chain", "diamond_cat", "attention", "convolution") and activation == "smooth":
        monkeypatch.setattr(pairs, "_too_many_outputs", lambda *_: True)
        assert compare(case, expected) == {"products"}


def test_piecewise_linear_networks_are_exact_without_probes():
    case = make("chain", "relu", batch=6)
    found = inter_layer_metrics(*case.given)
    assert {m.method for m in found.values()} == {"factors"}
    assert all(m.R.error == m.D.error == m.gap.value == m.R.products == 0 for m in found.values())


def test_a_loss_that_is_not_convex_has_signed_factors(no_exact_blocks):
    case = make("nested_branches", "relu")
    dag = Dag(
        list(case.dag.nodes.values()), loss=lambda o, t: torch.sin(3 * o).sum(1) + o[:, 0] * o[:, 1]
    )
    compare(Case("signed", dag, case.x, case.y), truth(dag, case.x, case.y, case.nodes))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", ["relu", "smooth"])
def test_ratios_do_not_depend_on_the_scale_of_the_loss(dtype, activation, no_exact_blocks):
    case = make("chain", activation)

    def measured(c):
        loss = lambda o, t: c * F.cross_entropy(o, t, reduction="none")  # noqa: E731
        dag = Dag(list(case.dag.to(dtype).nodes.values()), loss)
        return inter_layer_metrics(dag, case.x.to(dtype), case.y, generator=seeded(3))

    plain = measured(1.0)
    for scale in (1e-20, 1e20):
        for pair, scaled in measured(scale).items():
            assert scaled.R.value == pytest.approx(scale * plain[pair].R.value, rel=1e-3)
            for name in ("C", "D", "gap"):
                expected = getattr(plain[pair], name).value
                assert getattr(scaled, name).value == pytest.approx(expected, rel=1e-3, nan_ok=True)


def test_zero_blocks_are_nan_with_a_reason():
    dead = linear(4, 4)
    nn.init.zeros_(dead.weight)
    dag = Dag.from_sequential([linear(5, 4), dead, linear(4, 3)], names=["a", "b", "out"])
    found = inter_layer_metrics(dag, normal(3, 5), torch.tensor([0, 1, 2]))
    assert found["a", "a"].R.value == 0
    for name in ("C", "D", "gap"):
        estimate = getattr(found["a", "a"], name)
        assert math.isnan(estimate.value)
        assert "zero" in estimate.reason
    assert found["b", "b"].D.value > 0


def wide(activation):
    torch.manual_seed(0)
    parts = [nn.Linear(8, 40), activation, nn.Linear(40, 40), activation, nn.Linear(40, 3)]
    net = nn.Sequential(*parts).double()
    dag = Dag.from_sequential([net[:2], net[2:4], net[4]])
    return dag, 2 * normal(12, 8), torch.randint(0, 3, (12,))


@pytest.mark.parametrize("factors", [True, False])
def test_the_error_asked_for_is_reached(no_exact_blocks, monkeypatch, factors):
    monkeypatch.setattr(pairs, "_too_many_outputs", lambda *_: not factors)
    dag, x, y = wide(nn.Tanh())
    nodes = ("0", "1")
    found = inter_layer_metrics(dag, x, y, nodes, relative_error=0.01, generator=seeded(0))
    for pair, row in truth(dag, x, y, nodes).items():
        for name in VALUES:
            estimate = getattr(found[pair], name)
            assert estimate.error <= 0.012 * estimate.value
            assert abs(estimate.value - row[name]) <= 0.04 * row[name]


def test_probes_are_added_until_the_error_is_as_asked(no_exact_blocks, monkeypatch):
    """Of a node with more components than it takes probes, where the Gauss-Newton part is
    estimated, too."""
    monkeypatch.setattr(pairs, "_too_many_outputs", lambda *_: True)
    torch.manual_seed(0)
    parts = [nn.Linear(8, 500), nn.Tanh(), nn.Linear(500, 3)]
    net = nn.Sequential(*parts).double()
    dag = Dag.from_sequential([net[:2], net[2]])
    x, y = 2 * normal(12, 8), torch.randint(0, 3, (12,))
    expected = truth(dag, x, y, ("0",))["0", "0"]
    few, more = (
        inter_layer_metrics(dag, x, y, ["0"], relative_error=error, generator=seeded(0))["0", "0"]
        for error in (None, 0.05)
    )
    assert few.R.error > 0.05 * few.R.value
    assert 0 < more.R.error <= 0.05 * more.R.value
    assert more.R.products > few.R.products
    for name in ("R", "gap"):
        for found in (getattr(few, name), getattr(more, name)):
            assert abs(found.value - expected[name]) <= 4 * found.error


@pytest.mark.parametrize("seed", [388, 1203])
def test_signs_that_agree_on_two_components(no_exact_blocks, monkeypatch, seed):
    """Twelve probes of signs that are equal up to a factor gave R 5 % off, with error 0."""
    monkeypatch.setattr(
        by_factors, "on_sphere", lambda shape, dtype, generator: torch.ones(shape, dtype=dtype)
    )
    x, y = torch.tensor([[0.3, -0.2], [0.1, 0.5]], dtype=torch.float64), torch.zeros(2, 2).double()
    torch.manual_seed(seed)
    dag = Dag(
        [
            Node("h", ("input",), torch.sin),
            Node("out", ("h",), nn.Sequential(linear(2, 2), nn.Tanh())),
        ],
        "mse",
    )
    found = inter_layer_metrics(dag, x, y, ["h"])["h", "h"]
    expected = truth(dag, x, y, ("h",))["h", "h"]
    assert found.R.value == pytest.approx(expected["R"], rel=1e-9)
    assert found.gap.value == pytest.approx(expected["gap"], rel=1e-9)


def test_probes_on_the_sphere_have_covariance_one_and_never_agree():
    z = on_sphere((20_000, 3), torch.float64, seeded(0))
    assert torch.allclose(z.norm(dim=1), torch.full((20_000,), 3**0.5, dtype=torch.float64))
    assert torch.allclose(z.T @ z / len(z), torch.eye(3, dtype=torch.float64), atol=0.03)
    assert int(torch.linalg.matrix_rank(on_sphere((12, 2), torch.float64, seeded(1)))) == 2


def test_pairs_in_either_order_and_the_same_seed():
    case, pairs = make("chain"), [("c", "a"), ("b", "b")]
    one, two = (
        inter_layer_metrics(*case.given, pairs=pairs, generator=seeded(4)) for _ in range(2)
    )
    assert list(one) == pairs and one == two
    other = inter_layer_metrics(*case.given, pairs=[("a", "c")])
    assert other["a", "c"].R.value == pytest.approx(one["c", "a"].R.value)


@pytest.mark.parametrize("error", [None, 0.05])
def test_a_pair_and_its_transpose_may_both_be_asked_for(no_exact_blocks, error):
    torch.manual_seed(0)
    layers = [
        nn.Sequential(nn.Linear(60, 60), nn.Tanh()),
        nn.Sequential(nn.Linear(60, 60), nn.Tanh()),
    ]
    dag = Dag.from_sequential([*layers, nn.Linear(60, 60), nn.Tanh(), nn.Linear(60, 3)])
    x, y = torch.randn(3, 60), torch.tensor([0, 1, 2])
    pairs = [("1", "0"), ("0", "1")]
    there, back = inter_layer_metrics(
        dag, x, y, pairs=pairs, relative_error=error, ranks=False
    ).values()
    for name in ("R", "C", "gap"):
        assert getattr(there, name).value == pytest.approx(getattr(back, name).value, rel=1e-6)
    assert there.R.error > 0


def test_mistakes_say_what_to_do():
    case = make("chain")
    with refusal("unknown nodes"):
        inter_layer_metrics(*case.given, pairs=[("a", "nowhere")])
    with refusal("not among nodes"):
        inter_layer_metrics(*case.given, nodes=["a"], pairs=[("a", "b")])
    with refusal("relative_error must be positive"):
        inter_layer_metrics(*case.given, relative_error=0.0)


def test_without_ranks_only_the_stable_rank_is_missing(no_exact_blocks):
    case = make("chain")
    found = inter_layer_metrics(*case.given, ranks=False)
    assert all(
        math.isnan(m.D.value) and m.D.reason == "not asked for" and m.R.value > 0
        for m in found.values()
    )


def test_students_factor():
    for freedom, point in (
        (1, 12.7062),
        (2, 4.3027),
        (5, 2.5706),
        (7, 2.3646),
        (15, 2.1314),
        (60, 2.0003),
    ):
        assert 1.959964 * student(freedom) == pytest.approx(point, rel=2e-3)


def test_probes_without_a_generator_leave_torchs_random_stream():
    net = torch.nn.Sequential(
        torch.nn.Linear(6, 40), torch.nn.SiLU(), torch.nn.Linear(40, 40), torch.nn.SiLU()
    )
    dag = Dag.from_sequential([*net, torch.nn.Linear(40, 3)])
    x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))

    def measured():
        return inter_layer_metrics(dag, x, y, ["0"], ranks=False)["0", "0"].R.value

    before = torch.get_rng_state()
    first = measured()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert measured() == first


CHANGED_IN_PLACE = {
    "rectified": {"b": ("a", nn.ReLU(inplace=True)), "c": ("a b", lambda a, b: a + b)},
    "smooth": {"b": ("a", nn.SiLU(inplace=True)), "c": ("b a", lambda b, a: b * a)},
}


@pytest.mark.parametrize("name", CHANGED_IN_PLACE)
@pytest.mark.parametrize("way", ["factors", "cheapest"])
def test_metrics_of_nodes_that_work_in_place(name, way, monkeypatch):
    """A parent that a node overwrites keeps its value for its other children."""
    if way == "factors":
        monkeypatch.setattr(pairs, "exact_price", lambda *_: math.inf)
    torch.manual_seed(0)
    dag = graph(a=("input", torch.sin), **CHANGED_IN_PLACE[name], out=("c", linear(6, 3)))
    compare(Case("", dag, X, Y), truth(dag, X, Y, dag.order))


SIZES = {"a": 90, "b": 60, "c": 40}
PAIRS = [("a", "a"), ("a", "b"), ("a", "c"), ("b", "b"), ("b", "c"), ("c", "c")]


def matrix(seed):
    """Blocks of a symmetric matrix with eigenvalues +-i^-0.4: stable ranks of 10 to 30."""
    torch.manual_seed(seed)
    n = sum(SIZES.values())
    basis, _ = torch.linalg.qr(normal(n, n))
    values = torch.arange(1, n + 1, dtype=torch.float64) ** -0.4 * normal(n).sign()
    return blocks_of((basis * values) @ basis.mT, {v: [d] for v, d in SIZES.items()})


def swept(blocks, tolerance, most=40):
    calls = []

    def apply(w, directions):
        calls.append(len(directions))
        return {v: directions @ blocks[w, v] for v in SIZES}

    spaces = SharedSubspaces(apply, SIZES)
    for w, d in SIZES.items():
        z = normal(12, d)
        spaces.know(w, z, apply(w, z))
    found = {}
    proposed = list(spaces.sweeps(found, PAIRS, tolerance, most))
    assert sum(proposed) >= sum(calls[3:])
    return found, calls[3:]


def test_sweeps_take_directions_together_and_end_exactly():
    blocks = matrix(1)
    found, calls = swept(blocks, 1e-8)
    for pair in PAIRS:
        assert found[pair].value == pytest.approx(
            float(torch.linalg.matrix_norm(blocks[pair], 2)), rel=1e-7
        )
    assert sum(calls) / len(calls) >= FEW - 1


def test_directions_are_cut_into_what_fits():
    assert [_fitting((1, 4, 16), count) for count in (1, 2, 3, 4, 8, 12, 16, 40)] == [
        1,
        1,
        4,
        4,
        4,
        16,
        16,
        16,
    ]
    assert _fitting((16,), 3) == 16


def test_operations_of_convolutions_and_their_gradients():
    conv, x = nn.Conv2d(3, 4, 3, padding=1, bias=False), torch.randn(2, 3, 8, 8)
    for given, gradients in (
        (x, 2),
        (x.clone().requires_grad_(), 3),
    ):  # without a gradient at x, and with one
        with Operations() as counted:
            conv(given).sum().backward()
        assert counted.total == gradients * 2 * 2 * 4 * 64 * 27
    up = nn.ConvTranspose2d(4, 3, 2, stride=2, bias=False)
    with Operations() as counted, torch.no_grad():
        up(torch.randn(2, 4, 5, 5))
    assert counted.total == 2 * 2 * 4 * 25 * math.prod((3, 2, 2))


def test_blocks_that_cost_little_more_than_probes_are_exact_unless_an_error_is_asked_for():
    blocks = [nn.Sequential(nn.Linear(128, 128), nn.SiLU()) for _ in range(4)]
    dag = Dag.from_sequential([*blocks, nn.Linear(128, 10)])
    x, y = torch.randn(32, 128), torch.arange(32) % 10
    pair = ("0", "1")
    exact = inter_layer_metrics(dag, x, y, dag.order[:-1])[pair]
    assert exact.method == "exact blocks" and exact.R.error == exact.gap.error == 0
    asked = inter_layer_metrics(dag, x, y, dag.order[:-1], relative_error=0.5, generator=seeded())
    assert asked[pair].method == "factors, products"
    assert abs(asked[pair].R.value - exact.R.value) <= 5 * asked[pair].R.error
