"""The paper's estimates through the network next to exact blocks: convergence, residuals, streams,
coverage."""

import pytest
import torch

from experiments.dag.protocol.probes import part_norms, spectral_norms
from runner.curvature import split_blocks
from tests.curvature.cases import make, node_operator
from tests.draws import seeded
from tests.slow import slow

CASE = make("diamond_cat")
EXACT = split_blocks(CASE.dag, CASE.x, CASE.y)
PAIRS = [("stem", "a0"), ("a0", "b0"), ("a0", "a0")]


def norms(pairs, probes, seed=0):
    return part_norms(CASE.dag, CASE.x, CASE.y, CASE.nodes, pairs, probes, seeded(seed))


def test_norms_of_all_parts_converge_within_their_errors():
    for pair, found in norms(PAIRS, 1000).items():
        for name in ("total", "gauss_newton", "tensor"):
            estimate = getattr(found, name)
            exact = float(getattr(EXACT, name)[pair].norm())
            assert abs(estimate.value - exact) <= 5 * estimate.error
            assert 0 < estimate.error < 0.1 * exact


@pytest.mark.parametrize("seeds", [50, slow(200)])
def test_intervals_of_few_probes_cover(seeds):
    pair, hits = PAIRS[0], 0
    exact = float(EXACT.total[pair].norm())
    for seed in range(seeds):
        found = norms([pair], 6, seed)[pair].total
        hits += found.low <= exact <= found.high
    assert 0.90 <= hits / seeds <= 0.99


def test_probes_of_a_node_do_not_depend_on_the_other_pairs():
    alone, among = norms(PAIRS[:1], 8), norms(PAIRS[::-1], 8)
    assert alone[PAIRS[0]] == among[PAIRS[0]]


def test_the_power_iteration_approaches_the_spectral_norm_from_below():
    operator = node_operator(CASE.dag, CASE.x, CASE.y)
    few, many = (spectral_norms(operator, PAIRS, steps, seeded(2)) for steps in (2, 200))
    for pair in PAIRS:
        exact = float(torch.linalg.matrix_norm(EXACT.total[pair], 2))
        assert few[pair] <= many[pair] * (1 + 1e-12) and many[pair] == pytest.approx(exact)
