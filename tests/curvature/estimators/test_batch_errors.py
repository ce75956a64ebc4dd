"""The standard error over batches against the spread over many samples of data."""

import math

import pytest
import torch

import runner.curvature as rc
from tests.draws import normal, seeded, tanh_net
from tests.errors import refusal

SPLIT = {"a": slice(0, 3), "b": slice(3, 8)}


class Groups:
    """A matrix with groups."""

    def __init__(self, matrix):
        self.matrix, self.shape, self.groups = matrix, matrix.shape, SPLIT
        self.dtype, self.device, self.sizes = matrix.dtype, matrix.device, {"a": 3, "b": 5}

    def __matmul__(self, v):
        return self.matrix @ v


def sample(count, generator, size=8):
    """Matrices of batches: a fixed mean and noise."""
    mean = torch.diag(torch.arange(1.0, size + 1)).double() + 0.3
    noise = normal(count, size, size, generator=generator)
    return mean + (noise + noise.mT) / 4


def truth(mean):
    block, values = mean[SPLIT["a"], SPLIT["b"]], torch.linalg.eigvalsh(mean)
    first, second = (mean[s, s].norm() for s in SPLIT.values())
    return {
        "lambda_1": values[-1],
        "trace": mean.trace(),
        "R[a, b]": block.norm(),
        "C[a, b]": block.norm() / (first * second).sqrt(),
        "D[b, b]": (second / torch.linalg.matrix_norm(mean[SPLIT["b"], SPLIT["b"]], 2)) ** 2,
    }


def test_values_are_those_of_the_mean_and_errors_the_spread_over_samples():
    generator, rows, errors = seeded(1), [], []
    for _ in range(60):
        matrices = sample(12, generator)
        found = rc.batch_errors([Groups(m) for m in matrices], eigenvalues=2)
        expected = truth(matrices.mean(0))
        for name, value in expected.items():
            assert found[name].value == pytest.approx(float(value), rel=1e-10)
        rows.append([found[name].value for name in expected])
        errors.append([found[name].error for name in expected])
    spread = torch.tensor(rows).std(0)
    stated = torch.tensor(errors).square().mean(0).sqrt()
    assert torch.allclose(stated, spread, rtol=0.35), stated / spread


def test_intervals_cover_the_mean_of_all_data_with_unequal_batches():
    generator, hits, repeats = seeded(2), 0, 120
    mean = torch.diag(torch.arange(1.0, 9.0)).double() + 0.3
    expected = float(mean.trace())
    for _ in range(repeats):
        matrices, weights = sample(6, generator), [1.0, 1.0, 1.0, 1.0, 1.0, 0.5]
        scale = torch.tensor(weights).rsqrt().double()[:, None, None]
        matrices = mean + (matrices - mean) * scale
        found = rc.batch_errors(matrices, weights=weights)["trace"]
        hits += found.low <= expected <= found.high
    assert 0.88 * repeats <= hits <= repeats


def test_a_sketch_gives_the_errors_of_the_matrices_themselves():
    """1,200 columns: products of every batch with the same vectors."""
    size, generator = 1200, seeded(4)
    values = torch.cat([torch.tensor([30.0, 20.0]), torch.linspace(0, 1, size - 2)]).double()
    bumps = 1 + 0.2 * normal(5, size, generator=generator)

    class Diagonal:
        shape, dtype, device = (size, size), torch.float64, torch.device("cpu")

        def __init__(self, diagonal):
            self.diagonal, self.sizes = diagonal, {"a": 700, "b": 500}
            self.groups = {"a": slice(0, 700), "b": slice(700, size)}

        def __matmul__(self, v):
            return self.diagonal[:, None] * v if v.dim() == 2 else self.diagonal * v

    of_batches = [Diagonal(values * bump) for bump in bumps]
    found = rc.batch_errors(of_batches, eigenvalues=2, products=40, generator=seeded(5))
    each = torch.stack([one.diagonal for one in of_batches])
    for name, numbers in (
        ("lambda_1", each[:, 0]),
        ("lambda_2", each[:, 1]),
        ("trace", each.sum(1)),
    ):
        one = found[name]
        assert abs(one.value - float(numbers.mean())) <= 4 * one.estimator_error + 1e-9
        if name != "trace":
            assert one.error == pytest.approx(float(numbers.std()) / math.sqrt(5), rel=1e-6)
    norm = found["R[b, b]"]
    assert abs(norm.value - float(each.mean(0)[700:].norm())) <= 4 * norm.estimator_error
    assert found["R[a, b]"].value == 0 and "batches" in repr(norm)


def test_of_a_network_with_its_gap():
    net = tanh_net(4, 5, 3).double()
    batches = [(torch.randn(8, 4).double(), torch.randint(3, (8,))) for _ in range(4)]

    def operators(part):
        return [rc.ParameterOperator(net, "cross_entropy", b, part=part) for b in batches]

    found = rc.batch_errors(operators("hessian"), gauss_newton=operators("gauss_newton"))
    whole = rc.ParameterOperator(net, "cross_entropy", batches).dense()
    smooth = rc.ParameterOperator(net, "cross_entropy", batches, part="gauss_newton").dense()
    assert found["lambda_1"].value == pytest.approx(float(torch.linalg.eigvalsh(whole)[-1]))
    rows = slice(0, 25)
    gap = (whole - smooth)[rows, rows].norm() / smooth[rows, rows].norm()
    assert found["gap[0, 0]"].value == pytest.approx(float(gap))
    assert found["gap[0, 0]"].error > 0


def test_batches_weigh_what_their_operators_say():
    net, target = tanh_net(4, 5, 3).double(), torch.arange(8) % 3
    x = torch.randn(8, 4, generator=seeded(6)).double()

    def operators(ignored, **settings):
        y = target.where(torch.arange(8) >= ignored, -100)
        batches = [(x[:5], y[:5]), (x[5:], y[5:])]
        whole = rc.ParameterOperator(net, "cross_entropy", batches)
        return whole, [rc.ParameterOperator(net, "cross_entropy", b, **settings) for b in batches]

    whole, each = operators(0)
    found = rc.batch_errors(each)
    assert found["trace"].value == pytest.approx(float(whole.dense().trace()), rel=1e-10)
    whole, each = operators(3, weights=lambda x, y: int((y >= 0).sum()))
    found = rc.batch_errors(each)
    assert found["trace"].value == pytest.approx(float(whole.dense().trace()), rel=1e-10)
    with refusal("weigh them by"):
        rc.batch_errors(operators(3)[1])


def test_mistakes_are_answered_in_one_line():
    one = torch.eye(3).double()
    for operators, weights in (
        ([one], None),
        ([one, torch.eye(4).double()], None),
        ([one, one], [1, 0]),
    ):
        with refusal(r"at least two batches|weights above 0"):
            rc.batch_errors(operators, weights=weights)
