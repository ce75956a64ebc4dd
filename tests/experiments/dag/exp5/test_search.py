"""The search for Experiment 5's protocol: closed forms against the engine, variants, scores."""

import numpy as np
import pytest
import torch

from experiments.dag.exp5.search import score
from experiments.dag.exp5.search.closed import attention_gauss_newton, attention_parts, relu_norms
from experiments.dag.exp5.search.philox import CudaStream, philox
from experiments.dag.exp5.search.search import printed_targets
from experiments.dag.exp5.search.streams import Recipe, Stream, Teacher, network_of, recipes
from runner.curvature import split_blocks
from runner.models import attention_regressor, positionwise_mlp


def norm(matrix):
    return float(torch.linalg.matrix_norm(matrix))


@pytest.mark.parametrize("seed", [0, 1])
def test_attention_in_closed_form_is_the_engines(seed):
    g = torch.Generator().manual_seed(seed)
    network = attention_regressor(width=5, generator=g).double()
    x, y = torch.randn(6, 3, 5, generator=g, dtype=torch.float64), torch.randn(6, generator=g, dtype=torch.float64)
    found = split_blocks(network.to_dag("mse"), x, y, ("q", "k"))
    parts = attention_parts(network, x)
    want = tuple(norm(b["q", "k"]) for b in (found.total, found.gauss_newton, found.tensor))
    assert parts.norms(y) == pytest.approx(want, rel=1e-10)
    assert attention_gauss_newton(network, x) == pytest.approx(want[1], rel=1e-10)
    torch.testing.assert_close(parts.outputs, network(x).squeeze(-1))


def test_relu_in_closed_form_is_the_engines():
    g = torch.Generator().manual_seed(3)
    network = positionwise_mlp(width=5, generator=g).double()
    x, y = torch.randn(6, 3, 5, generator=g, dtype=torch.float64), torch.randn(6, generator=g, dtype=torch.float64)
    found = split_blocks(network.to_dag("mse"), x, y, network.measured).total
    norms = relu_norms(network, x)
    for v, w in (("block0", "block1"), ("block0", "block2"), ("block1", "block2")):
        block = found[v, w]
        assert norms[f"{v}-{w}"] == pytest.approx(norm(block), rel=1e-10)
        shared = block.reshape(3, 5, 3, 5).sum((0, 2))
        assert norms[f"{v}-{w} shared"] == pytest.approx(norm(shared), rel=1e-10)


def test_every_stream_of_the_torch_sources_is_torchs_own():
    torch.manual_seed(7)
    built = [attention_regressor(width=16), positionwise_mlp(width=16)]
    x, noise = torch.randn(2048, 8, 16), torch.randn(2048)
    data, stream = Recipe("torch", "fixed 7", "attention mlp", "x n x n").draw(42)
    assert torch.equal(data.x, x) and torch.equal(data.noise, noise)
    torch.randn(512 * 8 * 16 + 512)
    assert torch.equal(stream.torch.get_state(), torch.get_rng_state())
    for kind, network in zip(("attention", "mlp"), built, strict=True):
        assert torch.equal(Stream("torch", 7).network("attention").stages["q"].weight, built[0].stages["q"].weight)
        assert network_of(kind, "built second", 7).parameter_count == network.parameter_count
    second = network_of("mlp", "built second", 7).stages["head"].linear.weight
    assert torch.equal(second, built[1].stages["head"].linear.weight)


def test_numbers_of_a_gpu_are_the_published_ones_and_go_on():
    # a printed output of torch.manual_seed(0); torch.randn(8, 16, device="cuda"), first numbers
    want = [-0.9247, -0.4253, -2.6438, 0.1452, -0.1209, -0.5797, -0.6229, -0.3284, -1.0745, -0.3631]
    stream = CudaStream(0)
    assert stream.normal(10).round(4).tolist() == pytest.approx(want, abs=1e-4)
    later = CudaStream(0)
    later.normal(3)
    assert later.offset == stream.offset == 4
    big, small = CudaStream(5, blocks=864).normal(300000), CudaStream(5, blocks=160).normal(300000)
    assert np.array_equal(big[: 160 * 256], small[: 160 * 256]) and not np.array_equal(big, small)
    assert abs(big.mean()) < 0.01 and abs(big.std() - 1) < 0.01
    # Random123's known answers for zero and for pi's digits
    zero = np.zeros(1, dtype=np.uint64)
    assert [int(w[0]) for w in philox((zero, zero, zero, zero), 0)] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_a_match_would_be_found():
    recipe = next(r for r in recipes("numpy", ["plus 1"]) if r.order == "x x n n")
    seeds = range(42, 47)
    gaps, full = [], []
    for seed in seeds:
        data = recipe.draw(seed)[0]
        teacher = Teacher("torch")
        y = score.standardised((teacher(data.x), teacher(data.x_val)), data, 0.1)[:64]
        norms = attention_parts(network_of("attention", "of the seed", seed), data.x_val[:64]).norms(y)
        gaps.append(norms)
        full.append(norms[0])
    gn = sum(g[1] for g in gaps) / 5
    ratio = [g[2] / g[1] for g in gaps]
    hidden = {
        "attention gn": score.Target(gn, 1e-9),
        "attention full": score.Target(sum(full) / 5, 1e-8),
        "attention gap": score.Target(sum(ratio) / 5, 1e-3),
        "attention gap std": score.Target(score.spread(ratio), 1e-3),
        "attention loss": score.Target(0.0, 1e-9),
        "mlp full": score.Target(0.0, 1e-9),
        "mlp loss": score.Target(0.0, 1e-9),
    }
    rows = [r for r in score.search("numpy", hidden, ["plus 1"]) if r["stage"] == "targets"]
    best = max(rows, key=lambda r: r["digits"])
    assert best["digits"] == 4 and best["inputs"] == str(recipe) and best["noise"] == 0.1
    assert best["teacher"] == "torch teacher" and best["samples"] == "first"


def test_targets_are_the_printed_init_rows():
    found = printed_targets()
    assert found["attention gap"] == score.Target(57.5, 0.05) and found["attention gap std"].value == 16.4
    assert found["mlp full"].resolution == pytest.approx(0.0005)
    assert len(found) == 7
