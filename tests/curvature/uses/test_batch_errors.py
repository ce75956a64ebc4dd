"""The standard error over batches against the spread over many samples of data."""

import math

import pytest
import torch

import runner.curvature as rc
from tests.curvature.matrices import Grouped, largest, spectrum
from tests.draws import normal, seeded, tanh_net
from tests.errors import refusal

A, B = slice(0, 3), slice(3, 8)
MEAN = torch.diag(spectrum(1, 8, 8)) + 0.3


def sample(count, generator):
    """Matrices of batches: the mean and noise."""
    noise = normal(count, 8, 8, generator=generator)
    return MEAN + (noise + noise.mT) / 4


def truth(mean):
    coupled, first, second = mean[A, B].norm(), mean[A, A].norm(), mean[B, B].norm()
    return {
        "lambda_1": torch.linalg.eigvalsh(mean)[-1],
        "trace": mean.trace(),
        "R[a, b]": coupled,
        "C[a, b]": coupled / (first * second).sqrt(),
        "D[b, b]": (second / torch.linalg.matrix_norm(mean[B, B], 2)) ** 2,
    }


def test_values_are_those_of_the_mean_and_errors_the_spread_over_samples():
    generator, rows, errors = seeded(1), [], []
    for _ in range(60):
        matrices = sample(12, generator)
        found = rc.batch_errors([Grouped(m, a=A, b=B) for m in matrices], eigenvalues=2)
        expected = truth(matrices.mean(0))
        for name, value in expected.items():
            assert found[name].value == pytest.approx(float(value), rel=1e-10)
        rows.append([found[name].value for name in expected])
        errors.append([found[name].error for name in expected])
    spread = torch.tensor(rows).std(0)
    stated = torch.tensor(errors).square().mean(0).sqrt()
    assert torch.allclose(stated, spread, rtol=0.35), stated / spread


def test_intervals_cover_the_mean_of_all_data_with_unequal_batches():
    generator, hits, repeats, weights = seeded(2), 0, 120, [1, 1, 1, 1, 1, 0.5]
    scale = torch.tensor(weights).rsqrt().double()[:, None, None]
    for _ in range(repeats):
        matrices = MEAN + (sample(6, generator) - MEAN) * scale
        found = rc.batch_errors(matrices, weights=weights)["trace"]
        hits += found.low <= float(MEAN.trace()) <= found.high
    assert 0.88 * repeats <= hits <= repeats


def test_a_sketch_gives_the_errors_of_the_matrices_themselves():
    """1,200 columns: products of every batch with the same vectors."""
    values = spectrum(0, 1, 1200, 30, 20)
    each = values * (1 + 0.2 * normal(5, 1200, generator=seeded(4)))
    groups = {"a": slice(0, 700), "b": slice(700, 1200)}
    of_batches = [Grouped(torch.diag(row), **groups) for row in each]
    found = rc.batch_errors(of_batches, eigenvalues=2, products=40)
    for name, numbers in (("lambda_1", each[:, 0]), ("lambda_2", each[:, 1])):
        one = found[name]
        assert abs(one.value - float(numbers.mean())) <= 4 * one.estimator_error + 1e-9
        assert one.error == pytest.approx(float(numbers.std()) / math.sqrt(5), rel=1e-6)
    trace, norm = found["trace"], found["R[b, b]"]
    assert abs(trace.value - float(each.sum(1).mean())) <= 4 * trace.estimator_error
    assert abs(norm.value - float(each.mean(0)[700:].norm())) <= 4 * norm.estimator_error
    assert found["R[a, b]"].value == 0 and "batches" in repr(norm)


def test_of_a_network_with_its_gap():
    net = tanh_net(4, 5, 3).double()
    batches = [(normal(8, 4), torch.randint(3, (8,))) for _ in range(4)]

    def operators(part):
        each = [rc.ParameterOperator(net, "cross_entropy", b, part=part) for b in batches]
        return each, rc.ParameterOperator(net, "cross_entropy", batches, part=part)

    (hessians, whole), (newtons, newton) = operators("hessian"), operators("gauss_newton")
    found = rc.batch_errors(hessians, gauss_newton=newtons)
    assert found["lambda_1"].value == pytest.approx(float(largest(whole, 1)))
    smooth = newton.dense()[:25, :25]
    gap = (whole.dense()[:25, :25] - smooth).norm() / smooth.norm()
    assert found["gap[0, 0]"].value == pytest.approx(float(gap))
    assert found["gap[0, 0]"].error > 0


def test_numbers_of_a_zero_block_are_nan_with_a_reason():
    matrix = torch.diag(torch.tensor([1.0, 2.0, 0.0, 0.0])).double()
    found = rc.batch_errors([Grouped(matrix, a=slice(0, 2), b=slice(2, 4))] * 3)
    assert {name for name, one in found.items() if one.reason} == {"C[a, b]", "D[a, b]", "D[b, b]"}
    assert found["D[b, b]"].reason == "a block is zero"


def test_batches_weigh_what_their_operators_say():
    net, x = tanh_net(4, 5, 3).double(), normal(8, 4)

    def operators(ignored, **settings):
        y = torch.arange(8) % 3
        y[:ignored] = -100
        batches = [(x[:5], y[:5]), (x[5:], y[5:])]
        whole = rc.ParameterOperator(net, "cross_entropy", batches)
        each = [rc.ParameterOperator(net, "cross_entropy", b, **settings) for b in batches]
        return each, float(whole.dense().trace())

    for settings in ({"ignored": 0}, {"ignored": 3, "weights": lambda x, y: int((y >= 0).sum())}):
        each, trace = operators(**settings)
        assert rc.batch_errors(each)["trace"].value == pytest.approx(trace, rel=1e-10)
    with refusal("weigh them by"):
        rc.batch_errors(operators(3)[0])


def test_mistakes_are_answered_in_one_line():
    one = torch.eye(3).double()
    for operators in ([one], [one, torch.eye(4).double()]):
        with refusal("at least two batches"):
            rc.batch_errors(operators)
    with refusal("weights above 0"):
        rc.batch_errors([one, one], weights=[1, 0])
