"""Metrics: definitions on known matrices, and the DAG paper's laws on random networks."""

import math

import pytest
import torch
from torch import nn

from runner.curvature import (
    Dag,
    Node,
    assemble,
    block_jacobians,
    block_metrics,
    coupling,
    effective_dimension,
    exact_blocks,
    gap_by_distance,
    gauss_newton_blocks,
    gauss_newton_factors,
    gn_gap,
    gn_gap_of_sums,
    inter_layer_metrics,
    interaction_radius,
    lyapunov_exponents,
    lyapunov_log_norm,
    mean_spectral_norms,
    negative_curvature_mass,
    pull_back,
    rank_for_accuracy,
    resonance,
    spectral_radius,
    split_blocks,
    stable_rank,
    truncate,
    truncation_bound,
)
from runner.curvature.metrics.blocks import LowRank
from tests.curvature.cases import GRAPHS, block, linear, make, relative_error


def diagonal(*values: float) -> torch.Tensor:
    return torch.diag(torch.tensor(values, dtype=torch.float64))


def test_definitions_on_a_known_matrix():
    matrix = diagonal(4.0, 2.0, -2.0, 0.0)
    assert resonance(matrix) == pytest.approx(24**0.5)
    assert stable_rank(matrix) == pytest.approx(1.5)
    assert effective_dimension(matrix) == pytest.approx(2.0)
    assert negative_curvature_mass(matrix) == pytest.approx(2.0)
    assert coupling(2.0, 4.0, 1.0) == pytest.approx(1.0)
    assert gn_gap(diagonal(1.0), diagonal(2.0), epsilon=0) == pytest.approx(0.5)
    assert gn_gap_of_sums([1.0, 3.0], [2.0, 2.0]) == pytest.approx(1.0)


def test_ratios_of_zero_norms_are_nan():
    zero = torch.zeros(3, 2)
    assert math.isnan(stable_rank(zero)) and math.isnan(effective_dimension(zero))
    assert math.isnan(coupling(0.0, 0.0, 1.0)) and math.isnan(gn_gap_of_sums([1.0], [0.0]))


@pytest.mark.parametrize("graph", GRAPHS)
def test_order_of_dimensions(graph):
    """1 <= D <= d_eff <= sqrt(rank D) (Propositions 58 and 62)."""
    case = make(graph)
    for matrix in exact_blocks(case.dag, case.x, case.y).values():
        if resonance(matrix) > 1e-10:
            d, d_eff = stable_rank(matrix), effective_dimension(matrix)
            rank = int(torch.linalg.matrix_rank(matrix))
            assert 1 - 1e-12 <= d <= d_eff + 1e-12
            assert d_eff <= math.sqrt(min(matrix.shape) * d) + 1e-12
            assert d_eff <= math.sqrt(max(rank, 1) * d) * (1 + 1e-6)


@pytest.mark.parametrize("graph", [graph for graph in GRAPHS if graph != "nested_branches"])
def test_gauss_newton_is_positive_semi_definite_and_its_coupling_at_most_one(graph):
    case = make(graph)
    gauss_newton = gauss_newton_blocks(case.dag, case.x, case.y)
    matrix = assemble(gauss_newton, case.nodes)
    assert negative_curvature_mass(matrix) < 1e-12 * float(matrix.abs().max())
    c = [value for value in block_metrics(gauss_newton)["C"] if not math.isnan(value)]
    assert max(c) <= 1 + 1e-12


def test_coupling_can_exceed_one_when_the_tensor_part_is_there():
    """f = (a, b, a b) in the loss (f1 - 1)^2 + ...: at a = b = 0 only the mixed second derivative is left."""
    dag = Dag(
        [
            Node("a", ("input",), lambda h: h[:, :1]),
            Node("b", ("input",), lambda h: h[:, 1:]),
            Node("out", ("a", "b"), lambda a, b: a * b + 0.1 * a + 0.1 * b),
        ],
        loss="mse",
    )
    x, y = torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    columns = block_metrics(split_blocks(dag, x, y, ["a", "b"]))
    assert columns["C"][columns["w"].index("b")] > 1


def test_rescaling_invariance():
    """Theorem 44: W_v -> s W_v, W_w -> W_w / s scales H[v,v] by s^-2 and H[v,w] by 1/s, and leaves C(v,w)."""
    torch.manual_seed(0)
    x, y, s = torch.randn(4, 5, dtype=torch.float64), torch.tensor([0, 1, 2, 0]), 3.7
    first, rest = linear(5, 4), block(4, 4, nn.SiLU)
    dag = Dag([Node("v", ("input",), first), Node("w", ("v",), rest), Node("out", ("w",), linear(4, 3))])
    before = block_metrics(exact_blocks(dag, x, y))
    with torch.no_grad():
        first.weight *= s
        first.bias *= s
        rest[0].weight /= s
    after = block_metrics(exact_blocks(dag, x, y))
    assert after["C"] == pytest.approx(before["C"], rel=1e-12)
    powers = {("v", "v"): s**-2, ("v", "w"): 1 / s, ("v", "out"): 1 / s}
    for i, pair in enumerate(zip(before["v"], before["w"], strict=True)):
        assert after["R"][i] == pytest.approx(before["R"][i] * powers.get(pair, 1.0), rel=1e-12)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_bottleneck_bounds_the_rank(width):
    """Proposition 31, per example; the mean over B examples has at most B times the rank."""
    torch.manual_seed(0)
    x, y = torch.randn(3, 5, dtype=torch.float64), torch.tensor([0, 4, 2])
    dag = Dag(
        [
            Node("v", ("input",), block(5, 8, nn.Tanh)),
            Node("u", ("v",), block(8, width, nn.Tanh)),
            Node("w", ("u",), block(width, 8, nn.Tanh)),
            Node("out", ("w",), linear(8, 6)),
        ]
    )
    single = gauss_newton_blocks(dag, x, y, ["v", "w"], per_example=True)["v", "w"]
    assert int(torch.linalg.matrix_rank(single, rtol=1e-10).max()) == width
    mean = gauss_newton_blocks(dag, x, y, ["v", "w"])["v", "w"]
    assert int(torch.linalg.matrix_rank(mean, rtol=1e-10)) <= 3 * width


@pytest.mark.parametrize(
    ("graph", "activation"), [("chain", "smooth"), ("chain_layer_norm", "relu"), ("residual", "smooth")]
)
def test_resonance_decays_with_the_product_of_jacobians(graph, activation):
    """Theorem 25, per example: R(v_i, v_j) <= ||H[v_j,v_j]||_F ||J_j ... J_{i+1}||_2."""
    case = make(graph, activation)
    blocks = exact_blocks(case.dag, case.x, case.y, per_example=True)
    jacobians = block_jacobians(case.dag, case.x)
    for i, v in enumerate(case.nodes):
        product = torch.eye(blocks[v, v].shape[1], dtype=torch.float64).expand(len(case.x), -1, -1)
        for u, w in zip(case.nodes[i:], case.nodes[i + 1 :], strict=False):
            product = jacobians[w, u] @ product
            bound = torch.linalg.matrix_norm(blocks[w, w]) * torch.linalg.matrix_norm(product, 2)
            assert (torch.linalg.matrix_norm(blocks[v, w]) <= bound * (1 + 1e-12)).all()


@pytest.mark.parametrize("graph", ["chain", "diamond_cat"])
def test_gauss_newton_resonance_decays_with_distance(graph):
    """Corollary 26 / Theorem 77 where s rho < 1: weights are shrunk until it holds."""
    case = make(graph, "smooth")
    with torch.no_grad():
        for node in case.dag.nodes.values():
            for parameter in getattr(node.fn, "parameters", list)():
                parameter *= 0.2
    dag = case.dag
    jacobians = block_jacobians(dag, case.x)
    rho = max(float(torch.linalg.matrix_norm(j, 2).max()) for edge, j in jacobians.items() if edge[1] != "input")
    s = max(len(dag.children[v]) for v in dag.order)
    assert s * rho < 1
    gauss_newton = gauss_newton_blocks(dag, case.x, case.y, per_example=True)
    constant = torch.linalg.matrix_norm(gauss_newton["out", "out"])
    for (v, w), matrix in gauss_newton.items():
        bound = constant * (s * rho) ** dag.distance(v, w)
        assert (torch.linalg.matrix_norm(matrix) <= bound * (1 + 1e-12)).all()


def test_block_metrics_columns():
    case = make("diamond_sum")
    split = split_blocks(case.dag, case.x, case.y)
    columns = block_metrics(split, order=["a0", "a1", "b1"], distance=case.dag.distance)
    assert list(zip(columns["v"], columns["w"], columns["distance"], strict=True)) == [
        ("a0", "a0", 0),
        ("a0", "a1", 1),
        ("a0", "b1", 3),
        ("a1", "a1", 0),
        ("a1", "b1", 2),
        ("b1", "b1", 0),
    ]
    i = 2
    assert columns["R"][i] == pytest.approx(resonance(split.total["a0", "b1"]))
    assert columns["sigma1"][i] == pytest.approx(float(torch.linalg.matrix_norm(split.total["a0", "b1"], 2)))
    assert columns["D"][i] == pytest.approx(stable_rank(split.total["a0", "b1"]))
    assert columns["frob_tensor"][i] == pytest.approx(resonance(split.tensor["a0", "b1"]))
    assert columns["gap"][i] == pytest.approx(gn_gap(split.tensor["a0", "b1"], split.gauss_newton["a0", "b1"]))
    assert columns["C"][0] == pytest.approx(1.0)
    assert set(columns["status"]) == {""}
    by_hand = block_metrics(split.total, ["a0", "a1", "b1"], {(v, w): 7 for v in case.nodes for w in case.nodes})
    assert by_hand["distance"] == [7] * 6
    assert by_hand["R"] == columns["R"]
    with pytest.raises(ValueError, match="no blocks"):
        block_metrics(split, order=["nowhere"])


def test_gap_by_distance_is_the_ratio_of_sums():
    columns = {"distance": [0, 1, 0], "frob_tensor": [1.0, 5.0, 2.0], "frob_gn": [2.0, 1.0, 4.0]}
    assert gap_by_distance(columns) == {0: pytest.approx(0.5), 1: pytest.approx(5.0)}


def test_dead_blocks_are_nan_with_a_reason():
    """A ReLU layer whose units are all off cuts the curvature of what is before it."""
    torch.manual_seed(0)
    dead = block(4, 4, nn.ReLU)
    with torch.no_grad():
        dead[0].bias.fill_(-100.0)
    dag = Dag([Node("a", ("input",), block(3, 4, nn.ReLU)), Node("b", ("a",), dead), Node("out", ("b",), linear(4, 2))])
    columns = block_metrics(split_blocks(dag, torch.randn(2, 3, dtype=torch.float64), torch.tensor([0, 1])))
    rows = dict(zip(zip(columns["v"], columns["w"], strict=True), range(6), strict=True))
    assert columns["status"][rows["a", "b"]] == "diagonal block is zero"
    assert math.isnan(columns["D"][rows["a", "a"]]) and math.isnan(columns["C"][rows["a", "out"]])
    assert columns["R"][rows["a", "a"]] == 0
    assert columns["status"][rows["b", "b"]] == ""


def test_spectral_norms_of_the_jacobians():
    case = make("chain")
    jacobians = block_jacobians(case.dag, case.x, ["b", "c"])
    assert set(jacobians) == {("b", "a"), ("c", "b")}
    values = case.dag.forward(case.x)
    for b in range(len(case.x)):
        exact = torch.autograd.functional.jacobian(case.dag.nodes["b"].fn, values["a"][b])
        assert torch.allclose(jacobians["b", "a"][b], exact, atol=1e-14)
    norms = mean_spectral_norms(jacobians)
    assert norms["b", "a"] == pytest.approx(float(torch.linalg.matrix_norm(jacobians["b", "a"], 2).mean()))
    assert spectral_radius(jacobians) == max(norms.values())
    with pytest.raises(ValueError, match="at least one"):
        spectral_radius({})


def test_lyapunov_exponents_of_constant_jacobians():
    """Products of one triangular matrix: exponents are the logs of its diagonal, the log-norm tends to the largest."""
    j = torch.tensor([[2.0, 0.3], [0.0, 0.5]], dtype=torch.float64).expand(3, 2, 2)
    exponents = lyapunov_exponents([j] * 40)
    assert exponents.tolist() == pytest.approx([math.log(2), math.log(0.5)], abs=1e-12)
    assert lyapunov_log_norm([j] * 400) == pytest.approx(math.log(2), abs=1e-3)


def test_lyapunov_exponents_add_up_to_the_log_determinant():
    torch.manual_seed(0)
    steps = [torch.randn(5, 3, 3, dtype=torch.float64) for _ in range(7)]
    product = torch.linalg.multi_dot([s[0] for s in reversed(steps)])
    first = [s[:1] for s in steps]
    assert float(lyapunov_exponents(first).sum()) == pytest.approx(float(torch.linalg.slogdet(product)[1]) / 7)
    assert lyapunov_log_norm(first) == pytest.approx(math.log(torch.linalg.matrix_norm(product, 2)) / 7)
    assert lyapunov_log_norm(steps) == pytest.approx(
        sum(lyapunov_log_norm([s[b : b + 1] for s in steps]) for b in range(5)) / 5
    )
    with pytest.raises(ValueError, match="do not fit"):
        lyapunov_exponents([torch.ones(1, 3, 2), torch.ones(1, 2, 2)])
    with pytest.raises(ValueError, match="at least one"):
        lyapunov_log_norm([])


def test_log_norm_survives_depths_that_overflow():
    j = 1e30 * torch.eye(2, dtype=torch.float64).expand(1, 2, 2)
    assert lyapunov_log_norm([j] * 50) == pytest.approx(math.log(1e30))


def test_interaction_radius():
    assert interaction_radius(1.0, 0.5, [1.0, 2.0], 0.1) == 4
    assert interaction_radius(1.0, 0.5, [1.0], 0.125) == 4, "strictly below: 0.5^3 = 0.125 is not"
    assert interaction_radius(1.0, 0.5, [1.0], 2.0) == 0
    assert interaction_radius(1.0, 1.5, [1.0], 0.1) == math.inf
    assert interaction_radius(1.0, 0.0, [1.0], 0.1) == 1
    assert interaction_radius(1.0, 0.5, [0.0], 0.1) == math.inf
    with pytest.raises(ValueError, match="non-negative"):
        interaction_radius(-1.0, 0.5, [1.0], 0.1)


def test_negative_curvature_comes_from_the_tensor_part_alone():
    """Theorem 83 with a convex loss."""
    case = make("chain", "smooth", seed=5)
    split = split_blocks(case.dag, case.x, case.y)
    assert negative_curvature_mass(assemble(split.gauss_newton, case.nodes)) < 1e-12
    assert negative_curvature_mass(assemble(split.total, case.nodes)) > 1e-4
    relu = make("chain", "relu", seed=5)
    assert negative_curvature_mass(assemble(exact_blocks(relu.dag, relu.x, relu.y), relu.nodes)) < 1e-12


@pytest.mark.parametrize("graph", ["chain", "residual"])
def test_truncation_error_and_its_bound(graph):
    """Theorem 93: the error is that of the best approximation and at most sqrt(d_min - r) sigma_{r+1}."""
    case = make(graph)
    for found in exact_blocks(case.dag, case.x, case.y).values():
        values = torch.linalg.svdvals(found)
        for rank in range(len(values) + 2):
            low, error = truncate(found, rank)
            assert low.rank == min(rank, len(values))
            assert float(torch.linalg.matrix_norm(low.dense() - found)) == pytest.approx(error, abs=1e-13)
            assert error <= truncation_bound(values, rank) * (1 + 1e-12) + 1e-15
    assert truncation_bound(values, len(values)) == 0
    with pytest.raises(ValueError, match="at least 0"):
        truncate(found, -1)


def test_rank_for_accuracy_is_the_smallest_that_the_bound_allows():
    values = torch.tensor([1.0, 0.1, 0.01, 0.0], dtype=torch.float64)
    assert rank_for_accuracy(values, 0.2) == 1
    assert rank_for_accuracy(values, 0.1) == 2
    assert rank_for_accuracy(values, 1e-9) == 3
    assert rank_for_accuracy(values, 10.0) == 0
    for epsilon in (0.5, 0.15, 0.02):
        k = rank_for_accuracy(values, epsilon)
        assert truncate(torch.diag(values), k)[1] <= epsilon


def test_recursive_update_is_exact_at_full_rank():
    """Proposition 92 for a node with two children: sum over pairs of children of D^T H D."""
    case = make("diamond_cat")
    blocks = gauss_newton_blocks(case.dag, case.x, case.y, per_example=True)
    jacobians = block_jacobians(case.dag, case.x)
    children = ("a0", "b0")
    factors = {(u, w): truncate(blocks[u, w][0], 3)[0] for u in children for w in children}
    down = {u: jacobians[u, "stem"][0] for u in children}
    found = pull_back(factors, down, down, rank=4)
    assert torch.allclose(found.dense(), blocks["stem", "stem"][0], atol=1e-12)
    cut = pull_back(factors, down, down, rank=1)
    assert cut.rank == 1
    _, error = truncate(blocks["stem", "stem"][0], 1)
    assert float(torch.linalg.matrix_norm(cut.dense() - blocks["stem", "stem"][0])) == pytest.approx(error)


def test_numbers_stored():
    low = LowRank(torch.zeros(5, 2), torch.zeros(2), torch.zeros(7, 2))
    assert low.numbers == 26


@pytest.mark.parametrize("graph", ["chain_layer_norm", "skip", "attention", "shared_weights"])
def test_gauss_newton_factors_are_exact(graph):
    case = make(graph)
    found = gauss_newton_factors(case.dag, case.x, case.y)
    assert found.error == 0
    assert relative_error(found.blocks(), gauss_newton_blocks(case.dag, case.x, case.y)) < 1e-12


@pytest.mark.parametrize("rank", [0, 1, 3, 5])
def test_truncated_gauss_newton_factors(rank):
    case = make("diamond_sum")
    exact = assemble(gauss_newton_blocks(case.dag, case.x, case.y), case.nodes)
    found = gauss_newton_factors(case.dag, case.x, case.y, rank=rank)
    matrix = assemble(found.blocks(), case.nodes)
    assert float(torch.linalg.matrix_norm(matrix - exact)) == pytest.approx(found.error)
    assert int(torch.linalg.matrix_rank(matrix, rtol=1e-10)) <= rank
    eigenvalues = torch.linalg.eigvalsh(exact)
    assert found.error == pytest.approx(float(eigenvalues[: len(exact) - rank].norm()))


def test_a_loss_that_is_not_convex_has_no_factors():
    case = make("nested_branches", seed=2)
    with pytest.raises(ValueError, match="not convex"):
        gauss_newton_factors(case.dag, case.x, case.y)


@pytest.mark.parametrize("rank", [None, 5])
def test_factors_and_metrics_in_bfloat16(rank):
    """torch.linalg has no bfloat16: the loss Hessian is decomposed in float32."""
    case = make("chain")
    narrow, x = case.dag.to(torch.bfloat16), case.x.bfloat16()
    exact = gauss_newton_factors(case.dag, case.x, case.y, rank=rank)
    found = gauss_newton_factors(narrow, x, case.y, rank=rank)
    assert next(iter(found.factors.values())).dtype == torch.bfloat16
    assert relative_error({k: b.double() for k, b in found.blocks().items()}, exact.blocks()) < 0.05
    pair = (case.nodes[0], case.nodes[0])
    wide, low = (inter_layer_metrics(d, z, case.y, pairs=[pair])[pair] for d, z in ((case.dag, case.x), (narrow, x)))
    assert low.R.value == pytest.approx(wide.R.value, rel=0.05, abs=3 * low.R.error)
