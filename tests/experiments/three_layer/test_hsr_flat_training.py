"""The contest: every method's step, prices, budgets, the search, claims from tables."""

import csv
import math
from dataclasses import replace
from itertools import product

import pandas as pd
import pytest
import torch

from experiments.three_layer.hsr_flat_training.measure import (
    accuracies,
    epochs_of,
    load,
    look_epochs,
    losses,
    network,
    run,
)
from experiments.three_layer.hsr_flat_training.methods import Settings, Stepper, trial
from experiments.three_layer.hsr_flat_training.settings import BASELINES, METHODS
from experiments.three_layer.stochastic_bound import combine, hessian_vector_product, signs
from runner import stats
from runner.contract import Context, SettingError, analyse, measure
from runner.run.config import build_job, preview
from tests import ROOT
from tests.draws import seeded
from tests.errors import refusal
from tests.experiments.tables import check, claims_of, grid

SEARCH = ROOT / "experiments/reference/hsr_flat_tuning.csv"
WORDS = ["profile=quick", "experiment.widths=[5]", "experiment.train=60", "experiment.batch=30"]


@pytest.fixture(scope="module")
def experiment():
    return build_job(["experiment=hsr_flat_training", *WORDS]).experiment


@pytest.fixture(scope="module")
def start(experiment):
    """Data and, in double precision, one network."""
    x, y = load(experiment, Context(1)).train
    parameters = network(experiment, 64, Context(1))
    return (x.double(), y), [p.detach().double().requires_grad_() for p in parameters]


def gradients(settings, start, number=1, progress=0.0):
    """Of these settings at the start; number: of steps."""
    part, single = start
    parameters = [p.detach().clone().requires_grad_() for p in single]
    stepper = Stepper([settings], parameters, seeded(3), 0.9)
    for _ in range(number):
        found = stepper.gradients(lambda: losses(parameters, part), progress)
    return found, stepper


def gradient_at(part, parameters):
    leaves = [p.detach().requires_grad_() for p in parameters]
    return torch.autograd.grad(losses(leaves, part)[0], leaves)


def ascended(part, parameters, radius, scales=None):
    """The gradient a radius away, uphill by scales² of each entry."""
    scales = scales or [torch.ones_like(p) for p in parameters]
    first = gradient_at(part, parameters)
    norm = sum((t * g).square().sum() for t, g in zip(scales, first, strict=True)).sqrt()
    moves = zip(parameters, scales, first, strict=True)
    return gradient_at(part, [p + radius * t * t * g / norm for p, t, g in moves])


def same(found, wanted):
    for f, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(f, w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("radius", [0.05, 2.0])
def test_sam_is_the_gradient_a_radius_away(start, radius):
    found, stepper = gradients(Settings("sam", 0.1, radius=radius), start)
    same(found, ascended(*start, radius))
    assert stepper.price == 2


@pytest.mark.parametrize("method", ["asam", "asam_all"])
def test_adaptive_sam_scales_by_size_and_its_readings_differ_in_the_biases(start, method):
    part, single = start
    at, scales = [], []
    for p in single:  # biases, too
        columns = torch.arange(p.shape[1]).view(1, -1, *[1] * (p.ndim - 2))
        at.append(p.detach() + 0.1 * columns)
        plain = method == "asam" and p.ndim == 2
        scales.append(torch.ones_like(p) if plain else at[-1].abs() + 0.01)
    found, _ = gradients(Settings(method, 0.1, radius=0.7), (part, at))
    same(found, ascended(part, at, 0.7, scales))


@pytest.mark.parametrize("probes", [1, 4])
def test_hsr_and_trace_are_gradients_of_their_estimates(start, probes):
    """Against the closed estimate with the same probes; after the first step the running spread is
    σ̂ itself."""
    part, single = start
    value, generator = losses(single, part)[0], seeded(3)
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
        found, stepper = gradients(Settings(method, 0.1, weight=0.02, probes=probes), start)
        same(found, wanted)
        assert stepper.price == 2 + 4 * probes


@pytest.mark.parametrize(
    "settings",
    [
        Settings("hsr", 0.1, weight=0.1, probes=2, end=0.5),
        Settings("asam", 0.1, radius=0.7, end=0.5),
    ],
)
def test_a_dropped_term_leaves_the_plain_step(start, settings):
    found, stepper = gradients(settings, start, progress=0.5)
    same(found, gradient_at(*start))
    assert stepper.price == 1
    _, stepper = gradients(settings, start, progress=0.49)
    assert stepper.price == settings.price > 1
    assert settings.mean_price == (settings.price + 1) / 2


def test_all_methods_try_the_same_rates_each_once():
    rates = [trial("sgd", k).rate for k in range(16)]
    assert len(set(rates)) == 16
    for method in METHODS:
        settings = [trial(method, k) for k in range(16)]
        assert [one.rate for one in settings] == rates
        assert len(settings) == len(set(settings)) == 16
        assert {one.end for one in settings} == {0.5 if method.endswith("_half") else 1.0}
    assert {trial("hsr", k).probes for k in range(16)} == {1, 2, 4}
    with refusal("sdg"):
        trial("sdg", 0)


@pytest.mark.parametrize("method", METHODS)
def test_equal_cost_costs_the_same(experiment, method):
    experiment = replace(experiment, epochs=20, price=6.0)
    for settings in (trial(method, k) for k in range(16)):
        cost = epochs_of(experiment, settings, "cost")
        assert cost * settings.mean_price == pytest.approx(120, rel=0.06)
        assert epochs_of(experiment, settings, "steps") == 20


@pytest.mark.parametrize("name", ["hsr_flat_training", "hsr_flat_cifar10"])
def test_the_chosen_settings_are_those_of_the_search(name):
    """Counted here from the stored search, by the two rules of the configuration file."""
    experiment = preview(name)
    with open(SEARCH, newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["contest"] == name]
    for method, chosen in experiment.chosen.items():
        for budget, pair in (("steps", chosen[:2]), ("cost", chosen[2:])):
            ends = []
            for row in rows:
                if (row["method"], row["budget"]) == (method, budget) and row["lambda_max"]:
                    accuracy, size = float(row["validation_accuracy"]), float(row["lambda_max"])
                    ends.append((accuracy, -size, int(row["trial"])))
            best, _, most_accurate = max(ends)
            limit = best - math.sqrt(best * (1 - best) / (3 * experiment.validation))
            flattest = max(end[1:] for end in ends if end[0] >= limit)[1]
            assert pair == [most_accurate, flattest], (method, budget)


def test_one_that_diverges_says_so(experiment):
    (end,), _ = run(experiment, Settings("sgd", 1e300), "steps", Context(1))
    assert end["status"] == "diverged" and math.isnan(end["train_loss"])


def test_parts_are_disjoint_and_images_are_averaged(experiment):
    data = load(experiment, Context(1))
    rows = [tuple(r) for part in (data.train, data.validation, data.test) for r in part[0].tolist()]
    assert len(rows) == 60 + 350 + 447 and len(set(rows)) >= len(rows) - 2
    words = ["dataset=surrogate", "dataset.train=90", "experiment.validation=20"]
    words += [*WORDS, "experiment.test=10"]
    images = build_job(["experiment=hsr_flat_training", *words]).experiment
    x, y = load(images, Context(1)).train
    assert x.shape == (60, 192) and int(y.max()) <= 9
    assert 0 <= float(accuracies(network(images, 192, Context(1)), (x, y))) <= 1


def test_looks_are_even_in_logarithms():
    assert look_epochs(100, 2) == {0, 1, 10, 100} and look_epochs(7, 0) == set()


# -- the contest, from constructed tables ---------------------------------------------------------


@pytest.fixture(scope="module")
def contest():
    methods = f"experiment.method=[{','.join(METHODS)}]"
    return build_job(["experiment=hsr_flat_training", *WORDS, methods]).experiment


def held(contest, factor, seeds=10, shift=0.0, budgets=("steps", "cost")):
    """Ends of ten seeds: λ₁ of HSR is `factor` times that of the others, accuracy `shift` higher.

    budgets: those where HSR differs from the others.
    """
    cells = pd.DataFrame([cell.params for cell in contest.cells()])
    ends = cells.merge(grid(seed=range(seeds)), how="cross")
    method = ends["method"]
    ours = method.str.startswith("hsr") & ends["budget"].isin(budgets)
    noise = 1 + 0.01 * ((ends["seed"] * 7 + 3 * method.str.len()) % 5)
    size = noise * ours.map({True: factor, False: 1.0})
    other = {"rate": 0.1, "radius": 0.0, "weight": 0.1, "probes": 2, "status": "ok"}
    other |= {"gradients": 10.0, "cpu_seconds": 1.0, "train_loss": 0.1}
    accuracy = 0.9 + 0.001 * noise + shift * ours
    values = {"lambda_max": size, "lambda_sup": 2 * size, "test_accuracy": accuracy}
    return {"ends": ends.assign(**other, **values)}


@pytest.fixture(scope="module")
def better(contest):
    """HSR is flatter and more accurate than each baseline."""
    return held(contest, 0.5, shift=0.02)


def test_each_statement_fails_under_its_alternative(contest, better):
    """The alternative: HSR and the baseline exchange their places, in all entries or at one
    budget."""
    worse = held(contest, 2.0, shift=-0.02)
    partly = held(contest, 0.5, shift=0.02, budgets=("steps",))
    for baseline, word in product(BASELINES, ("flatter", "more accurate")):
        name = f"{word}: {baseline}"
        check(contest, better, confirmed=name)
        check(contest, worse, refuted=name)
        assert claims_of(contest, partly)[name].verdict != "confirmed"
        parts = claims_of(contest, better)[name].variants
        assert sum("first half" in part for part in parts) == 4


def test_the_tests_are_paired_and_can_reach_the_level(contest, better):
    analysis = analyse(contest, better)
    tests = stats.correct(analysis.statistics())
    assert len(tests) == 8 * 2 * len(BASELINES)
    assert all(test.p == pytest.approx(2 / 2**10) and test.p_holm < 0.01 for test in tests)
    first = next(test for test in tests if test.name.startswith("log λ₁"))
    assert math.exp(first.shift) == pytest.approx(0.5, rel=0.05)
    documents = analysis.documents()
    assert "| equal cost | tuned for flatness | first half | 0.5" in documents["contest.md"]
    assert "| HSR | rate 0.1, weight 0.1, probes 2 | 0.51" in documents["methods.md"]


def test_a_missing_entry_confirms_nothing(contest, better):
    ends = better["ends"]
    whole = {"ends": ends[~ends["method"].str.endswith("_half")]}
    check(contest, whole, inconclusive="flatter: sgd")
    assert "not run: " in claims_of(contest, whole)["flatter: sgd"].detail


def test_trainings_that_failed_are_named(contest, better):
    ends = better["ends"].copy()
    ends.loc[0, "train_loss"] = 2.4
    notes = analyse(contest, {"ends": ends}).notes()
    assert any("sgd, settings" in note and "no better than chance" in note for note in notes)


@pytest.mark.slow
@pytest.mark.parametrize("methods", [["sgd"], ["hsr"], ["sgd", "hsr"], ["sam", "hsr_half"]])
def test_partial_tables_have_a_report(contest, methods):
    whole = held(contest, 0.5, seeds=2)["ends"]
    tables = {"ends": whole[whole["method"].isin(methods)]}
    assert "not run" not in {claim.verdict for claim in claims_of(contest, tables).values()}
    assert isinstance(analyse(contest, tables).notes(), list)


def test_the_contest_measures_what_was_chosen(contest):
    where = {"method": "sgd", "budget": "cost"}
    cell = next(cell for cell in contest.cells() if where.items() <= cell.params.items())
    tables = measure(contest, cell, Context(1))
    (end,) = tables["ends"]
    assert end["budget"] == "cost" and end["rate"] == trial("sgd", cell.params["trial"]).rate
    assert tables["curves"][0]["epoch"] == 0
    with refusal(r"chosen\.sgd: expected 4", SettingError):
        replace(contest, chosen={})
