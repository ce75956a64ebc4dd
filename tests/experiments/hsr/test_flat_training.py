"""The contest: every method's step against the engine's own functions, prices, budgets, choice, claims from tables."""

from dataclasses import replace

import pytest
import torch

from experiments.hsr.flat_training.data import accuracies, load, losses, network
from experiments.hsr.flat_training.measure import look_epochs, marks, run, run_all
from experiments.hsr.flat_training.methods import Settings, trial
from experiments.hsr.flat_training.names import METHODS
from experiments.hsr.flat_training.stepper import Stepper
from runner.contract.experiment import Context
from runner.contract.schema import SettingError
from runner.run.config import build_job
from runner.training.flatness.stochastic import combine, hessian_vector_product, sharpness_aware_gradients, signs

WORDS = ["profile=quick", "experiment.widths=[5]", "experiment.train=60", "experiment.batch=30"]


@pytest.fixture(scope="module")
def tuning():
    torch.set_num_threads(1)
    return build_job(["experiment=hsr_flat_tuning", *WORDS]).experiment


@pytest.fixture(scope="module")
def start(tuning):
    """Data and, in double precision, one network."""
    data = load(tuning, Context(1))
    x, y = data.train
    return (x.double(), y), [p.detach().double().requires_grad_() for p in network(tuning, 64, Context(1))]


def gradients(settings, start, number=1, progress=0.0):
    """Of every one of the settings, side by side, at the start; number: of steps."""
    part, single = start
    parameters = [p.detach().repeat(len(settings), *[1] * (p.ndim - 1)).requires_grad_() for p in single]
    stepper = Stepper(settings, parameters, torch.Generator().manual_seed(3), 0.9)
    for _ in range(number):
        found = stepper.gradients(lambda: losses(parameters, part), progress)
    return found, stepper


def plain(start):
    part, single = start
    return torch.autograd.grad(losses(single, part)[0], single)


def same(found, wanted, place):
    for f, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(f[place], w[0], rtol=1e-9, atol=1e-12)


def test_sam_is_the_engines_for_each_radius(start):
    part, single = start
    found, stepper = gradients([Settings("sam", 0.1, radius=r) for r in (0.05, 2.0)], start)
    for place, radius in enumerate((0.05, 2.0)):
        same(found, sharpness_aware_gradients(lambda: losses(single, part)[0], single, radius), place)
    assert stepper.price == 2


@pytest.mark.parametrize("method", ["asam", "asam_all"])
def test_adaptive_sam_scales_by_size_and_its_readings_differ_in_the_biases(start, method):
    part, single = start
    moved = [
        p.detach() + 0.1 * torch.arange(p.shape[1]).view(1, -1, *[1] * (p.ndim - 2)) for p in single
    ]  # biases, too
    at = [p.requires_grad_() for p in moved]
    first = torch.autograd.grad(losses(at, part)[0], at)
    scales = [torch.ones_like(p) if method == "asam" and p.ndim == 2 else p.detach().abs() + 0.01 for p in at]
    norm = sum((t * g).square().sum() for t, g in zip(scales, first, strict=True)).sqrt()
    there = [(p + 0.7 * t * t * g / norm).detach().requires_grad_() for p, t, g in zip(at, scales, first, strict=True)]
    wanted = torch.autograd.grad(losses(there, part)[0], there)
    found, _ = gradients([Settings(method, 0.1, radius=0.7)], (part, at))
    same(found, wanted, 0)


@pytest.mark.parametrize("probes", [1, 4])
def test_hsr_and_trace_are_gradients_of_their_estimates(start, probes):
    """Against the closed estimate with the same probes; after the first step the running spread is σ̂ itself."""
    part, single = start
    value, generator = losses(single, part)[0], torch.Generator().manual_seed(3)
    own = torch.autograd.grad(value, single, create_graph=True)
    forms, squares = [], []
    for _ in range(probes):
        probe = signs(single, generator)
        image = hessian_vector_product(own, single, probe, graph=True)
        forms.append(sum((z * h).sum() for z, h in zip(probe, image, strict=True)))
        squares.append(sum(h.square().sum() for h in image))
    dimension = sum(p.numel() for p in single)
    trace = torch.stack(forms).mean()
    if probes > 1:
        bound = combine(torch.stack(forms), torch.stack(squares), dimension).bound
    else:
        bound = trace / dimension + (dimension - 1) ** 0.5 * (squares[0] / dimension).sqrt()
    for method, penalty in (("trace", trace), ("hsr", bound)):
        wanted = torch.autograd.grad(value + 0.02 * penalty, single, retain_graph=True)
        found, stepper = gradients([Settings(method, 0.1, weight=w, probes=probes) for w in (0.0, 0.02)], start)
        same(found, plain(start), 0)
        same(found, wanted, 1)
        assert stepper.price == 2 + 4 * probes


def test_what_is_spared(start):
    """Between products, and before a late schedule begins, the step is plain; the last layer alone is bounded."""
    every, stepper = gradients([Settings("hsr_every", 0.1, weight=0.1, probes=1, interval=4)], start, number=2)
    same(every, plain(start), 0)
    assert stepper.price == 6 + 1
    late, stepper = gradients([Settings("hsr_late", 0.1, weight=0.1, probes=2, start=0.6)], start, progress=0.5)
    same(late, plain(start), 0)
    assert stepper.price == 1
    _, stepper = gradients([Settings("hsr_last", 0.1, weight=0.1, probes=2, layers=1)], start)
    assert [tuple(p.shape) for p in stepper.bounded] == [(1, 10, 5), (1, 10)]
    assert stepper.price == pytest.approx(1 + 9 / 2)
    with pytest.raises(ValueError, match="alone"):
        gradients([Settings("hsr", 0.1, weight=0.1, probes=1), Settings("hsr", 0.1, weight=0.1, probes=2)], start)


def test_all_methods_try_the_same_rates_each_once():
    rates = {method: [trial(method, k).rate for k in range(16)] for method in METHODS}
    assert len({tuple(found) for found in rates.values()}) == 1 and len(set(rates["sgd"])) == 16
    assert len({trial("hsr", k).weight for k in range(16)}) == 16
    assert {trial("hsr", k).probes for k in range(16)} == {1, 2, 4}
    assert {trial("hsr_every", k).interval for k in range(16)} == {2, 4, 8, 16}
    with pytest.raises(ValueError, match="sdg"):
        trial("sdg", 0)


@pytest.mark.parametrize("method", METHODS)
def test_equal_cost_costs_the_same(tuning, method):
    experiment = replace(tuning, epochs=20, price=6.0, widths=[32] * 5)
    for k in range(16):
        settings = trial(method, k)
        found = marks(experiment, settings)
        assert found["cost"] * settings.mean_price(6) == pytest.approx(120, rel=0.06)
        assert ("steps" in found) == (method != "hsr_late")
    assert marks(experiment, trial("sgd", 0), ["steps"]) == {"steps": 20}


def test_a_trial_is_the_same_alone_and_beside_others(tuning):
    rows = run_all(tuning, "hsr", Context(5), 4)
    assert [(r["trial"], r["budget"]) for r in rows] == [(k, b) for k in range(4) for b in ("cost", "steps")]
    alone, _ = run(tuning, [trial("hsr", 2)], ["cost"], Context(5))
    beside = next(r for r in rows if r["trial"] == 2 and r["budget"] == "cost")
    for name in ("train_loss", "lambda_max", "lambda_sup"):
        assert alone[0][name] == pytest.approx(beside[name], rel=1e-3)
    assert alone[0]["gradients"] == beside["gradients"] and alone[0]["status"] == "ok"
    assert alone[0]["lambda_residual"] <= tuning.tolerance * alone[0]["lambda_max"] < alone[0]["lambda_sup"]


def test_one_that_diverges_leaves_the_others_alone(tuning):
    fine = run(tuning, [Settings("sgd", 0.1)], ["cost"], Context(1))[0][0]
    both = run(tuning, [Settings("sgd", 1e300), Settings("sgd", 0.1)], ["cost"], Context(1))[0]
    assert both[0]["status"] == "diverged" and both[0]["train_loss"] != both[0]["train_loss"]
    assert both[1]["train_loss"] == pytest.approx(fine["train_loss"], rel=1e-5)


def test_parts_are_disjoint_and_images_are_averaged(tuning):
    data = load(tuning, Context(1))
    rows = [tuple(r) for part in (data.train, data.validation, data.test) for r in part[0].tolist()]
    assert len(rows) == 60 + 350 + 447 and len(set(rows)) >= len(rows) - 2
    words = ["dataset=surrogate", "dataset.train=90", "experiment.validation=20", "experiment.test=10"]
    images = build_job(["experiment=hsr_flat_tuning", *WORDS, *words]).experiment
    x, y = load(images, Context(1)).train
    assert x.shape == (60, 192) and int(y.max()) <= 9
    assert accuracies(network(images, 192, Context(1), 3), (x, y)).shape == (3,)


def test_looks_are_even_in_logarithms():
    assert look_epochs(100, 2) == {0, 1, 10, 100} and look_epochs(7, 0) == set()


def test_what_cannot_be_used_is_refused(tuning):
    with pytest.raises(SettingError, match="at most the 1797"):
        replace(tuning, train=1001)
    with pytest.raises(SettingError, match="at least 4"):
        replace(tuning, bound_probes=3)
    with pytest.raises(SettingError, match="memory"):
        replace(tuning, memory=1.0)
