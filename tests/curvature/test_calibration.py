"""Error bars mean what their names say: spread of many estimates over the stated error, and coverage."""

import math

import pytest
import torch
from torch import nn

from runner.curvature import (
    CurvatureOperator,
    Dag,
    ParameterOperator,
    SymmetricOperator,
    couplings,
    discarded_coupling,
    frobenius_norms,
    gn_gaps,
    lanczos_extremes,
    resonance,
    split_blocks,
    stable_rank,
    stable_ranks,
)
from tests.curvature.cases import make

REPEATS, PROBES = 250, 30
PAIRS = [("stem", "a0"), ("a0", "b0"), ("b0", "merge"), ("a0", "merge")]


@pytest.fixture(scope="module")
def case():
    return make("diamond_cat")


@pytest.fixture(scope="module")
def exact(case):
    return split_blocks(case.dag, case.x, case.y)


class Dense(SymmetricOperator):
    """The blocks as an operator: hundreds of estimates in the time of one."""

    def __init__(self, blocks, nodes, sizes):
        self.blocks, self.nodes, self.sizes, self.reason = blocks, nodes, sizes, ""
        self.dtype, self.device = torch.float64, torch.device("cpu")

    def apply(self, directions):
        return {v: sum(r @ self.blocks[v, w].mT for w, r in directions.items()) for v in self.nodes}


@pytest.fixture(scope="module")
def dense(case, exact):
    return Dense(exact.total, case.nodes, CurvatureOperator(case.dag, case.x, case.y).sizes)


def calibration(estimates, truth):
    """(spread over mean stated error, share within two errors)."""
    values = torch.tensor([e.value for e in estimates], dtype=torch.float64)
    errors = torch.tensor([e.error for e in estimates], dtype=torch.float64)
    covered = ((values - truth).abs() <= 2 * errors).double().mean()
    return float(values.std() / errors.mean()), float(covered)


@pytest.mark.parametrize("activation", [nn.Tanh, nn.GELU, nn.Softplus])
@pytest.mark.parametrize("probes", [4, 10, 30])
def test_the_error_of_a_norm_covers_with_few_probes(activation, probes):
    """Nodes with more components than there are probes: few signs often agree on a smaller one."""
    torch.manual_seed(1)
    layers = [nn.Linear(8, 40), activation(), nn.Linear(40, 32), activation(), nn.Linear(32, 3)]
    dag = Dag.from_sequential([layer.double() for layer in layers])
    exact = split_blocks(dag, torch.randn(12, 8, dtype=torch.float64), torch.arange(12) % 3, ["0", "1", "2"]).total
    sizes = {v: block.shape[0] for (v, w), block in exact.items() if v == w}
    pairs = [("0", "0"), ("0", "1"), ("1", "2"), ("0", "2")]
    dense = Dense(exact, tuple(sizes), sizes)
    found = [frobenius_norms(dense, pairs, probes, torch.Generator().manual_seed(s)) for s in range(200)]
    hits = [abs(f[p].value - resonance(exact[p])) <= 1.96 * f[p].error for f in found for p in pairs]
    assert 0.90 <= sum(hits) / len(hits) <= 0.99


def test_the_error_of_a_coupling_knows_the_shared_probes(dense, exact):
    norms = {pair: resonance(block) for pair, block in exact.total.items()}
    found = [couplings(dense, PAIRS, PROBES, torch.Generator().manual_seed(s)) for s in range(REPEATS)]
    for v, w in PAIRS:
        truth = norms[v, w] / math.sqrt(norms[v, v] * norms[w, w])
        ratio, covered = calibration([f[v, w] for f in found], truth)
        assert 0.8 < ratio < 1.25, (v, w, ratio)
        assert 0.89 < covered < 0.99, (v, w, covered)


def test_the_error_of_a_stable_rank_covers_it(dense, exact):
    pairs = PAIRS[:2]
    found = [stable_ranks(dense, pairs, PROBES, 25, torch.Generator().manual_seed(s)) for s in range(100)]
    for pair in pairs:
        ratio, covered = calibration([f[pair] for f in found], stable_rank(exact.total[pair]))
        assert 0.75 < ratio < 1.3, (pair, ratio)
        assert covered > 0.87, (pair, covered)


def test_the_error_of_a_stable_rank_covers_a_power_iteration_cut_short(dense, exact):
    """One iteration: the residual of sigma_1 is part of the error."""
    pair = ("stem", "stem")
    found = [stable_ranks(dense, [pair], 2000, 2, torch.Generator().manual_seed(s))[pair] for s in range(40)]
    truth = stable_rank(exact.total[pair])
    assert sum(abs(f.value - truth) <= 2 * f.error for f in found) >= 36
    assert min(f.error for f in found) > 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_eigenvalue_lies_within_the_error_of_lanczos(dtype):
    """In float32 the residual alone is too small by the rounding of the products."""
    for graph in ("chain", "residual"):
        case = make(graph)
        truth = torch.linalg.eigvalsh(CurvatureOperator(case.dag, case.x, case.y).dense())
        dag = case.dag if dtype == torch.float64 else case.dag.to(dtype)
        operator = CurvatureOperator(dag, case.x.to(dtype), case.y)
        for steps in (1, 5, 40):
            for seed in range(6):
                found = lanczos_extremes(operator, None, steps, torch.Generator().manual_seed(seed))
                for end in (found.largest, found.smallest):
                    assert float((truth - end.value).abs().min()) <= end.error, (graph, steps, seed)


def test_the_error_of_a_gap_is_calibrated(case, exact):
    pair = ("a0", "b0")
    operator = CurvatureOperator(case.dag, case.x, case.y, part="tensor")
    found = [
        gn_gaps(operator, [pair], probes=20, generator=torch.Generator().manual_seed(s))[pair].gap for s in range(80)
    ]
    ratio, covered = calibration(found, resonance(exact.tensor[pair]) / resonance(exact.gauss_newton[pair]))
    assert 0.75 < ratio < 1.3 and covered > 0.87


class DenseGroups:
    """A matrix over groups of parameters as an operator."""

    def __init__(self, matrix, operator):
        self.matrix, self.groups, self.sizes, self.products = matrix, operator.groups, operator.sizes, 0

    def drawn(self, vectors):
        return vectors

    def column(self, group, z):
        image = self.matrix[:, self.groups[group]] @ z.double()
        return {g: image[rows] for g, rows in self.groups.items()}


@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
def test_the_interval_of_the_discarded_share_covers(part):
    """As far as it is said to, with few probes and with many; in [0, 1) always."""
    torch.manual_seed(0)
    layers = [nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 3)]
    data = [(torch.randn(40, 8, dtype=torch.float64), torch.randint(3, (40,)))]
    operator = ParameterOperator(nn.Sequential(*layers).double(), nn.CrossEntropyLoss(), data, part=part)
    matrix = operator.dense()
    inside = sum(float(matrix[s, s].square().sum()) for s in operator.groups.values())
    truth = 1 - inside / float(matrix.square().sum())
    for probes, repeats in ((4, 300), (30, 150)):
        dense = DenseGroups(matrix, operator)
        found = [discarded_coupling(dense, probes, generator=torch.Generator().manual_seed(s)) for s in range(repeats)]
        assert all(0 <= f.low <= f.value <= f.high < 1 for f in found)
        covered = sum(f.low <= truth <= f.high for f in found) / repeats
        assert 0.90 <= covered <= 0.995, (probes, covered)
