"""The contest: every method's step against the engine's own functions, prices, budgets, choice, claims from tables."""

import math
from dataclasses import replace

import pandas as pd
import pytest
import torch

from experiments.three_layer.hsr_flat_training.comparison import at_loss
from experiments.three_layer.hsr_flat_training.measure import (
    accuracy,
    epochs_of,
    load,
    look_epochs,
    losses,
    network,
    run,
)
from experiments.three_layer.hsr_flat_training.methods import Settings, Stepper, trial
from experiments.three_layer.hsr_flat_training.settings import METHODS, WIDE
from experiments.three_layer.stochastic_bound import combine, hessian_vector_product, signs
from runner import stats
from runner.contract import Context, SettingError, analyse, measure
from runner.run.config import build_job

WORDS = ["profile=quick", "experiment.widths=[5]", "experiment.train=60", "experiment.batch=30"]


@pytest.fixture(scope="module")
def experiment():
    return build_job(["experiment=hsr_flat_training", *WORDS]).experiment


@pytest.fixture(scope="module")
def start(experiment):
    """Data and, in double precision, one network."""
    data = load(experiment, Context(1))
    x, y = data.train
    return (x.double(), y), [
        p.detach().double().requires_grad_() for p in network(experiment, 64, Context(1))
    ]


def gradients(settings, start, number=1, progress=0.0):
    """Of these settings at the start; number: of steps."""
    part, single = start
    parameters = [p.detach().clone().requires_grad_() for p in single]
    stepper = Stepper(settings, parameters, torch.Generator().manual_seed(3), 0.9)
    for _ in range(number):
        found = stepper.gradients(lambda: losses(parameters, part), progress)
    return found, stepper


def plain(start):
    part, single = start
    return torch.autograd.grad(losses(single, part)[0], single)


def same(found, wanted):
    for f, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(f, w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("radius", [0.05, 2.0])
def test_sam_is_the_gradient_a_radius_away(start, radius):
    part, single = start
    first = plain(start)
    norm = sum(g.square().sum() for g in first).sqrt()
    there = [
        (p + radius * g / norm).detach().requires_grad_()
        for p, g in zip(single, first, strict=True)
    ]
    found, stepper = gradients(Settings("sam", 0.1, radius=radius), start)
    same(found, torch.autograd.grad(losses(there, part)[0], there))
    assert stepper.price == 2


@pytest.mark.parametrize("method", ["asam", "asam_all"])
def test_adaptive_sam_scales_by_size_and_its_readings_differ_in_the_biases(start, method):
    part, single = start
    moved = [
        p.detach() + 0.1 * torch.arange(p.shape[1]).view(1, -1, *[1] * (p.ndim - 2)) for p in single
    ]  # biases, too
    at = [p.requires_grad_() for p in moved]
    first = torch.autograd.grad(losses(at, part)[0], at)
    scales = [
        torch.ones_like(p) if method == "asam" and p.ndim == 2 else p.detach().abs() + 0.01
        for p in at
    ]
    norm = sum((t * g).square().sum() for t, g in zip(scales, first, strict=True)).sqrt()
    there = [
        (p + 0.7 * t * t * g / norm).detach().requires_grad_()
        for p, t, g in zip(at, scales, first, strict=True)
    ]
    wanted = torch.autograd.grad(losses(there, part)[0], there)
    found, _ = gradients(Settings(method, 0.1, radius=0.7), (part, at))
    same(found, wanted)


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
        found, stepper = gradients(Settings(method, 0.1, weight=0.02, probes=probes), start)
        same(found, wanted)
        assert stepper.price == 2 + 4 * probes


def test_what_is_spared(start):
    """Between products, and before a late schedule begins, the step is plain; the last layer alone is bounded."""
    every, stepper = gradients(
        Settings("hsr_every", 0.1, weight=0.1, probes=1, interval=4), start, number=2
    )
    same(every, plain(start))
    assert stepper.price == 6 + 1
    late, stepper = gradients(
        Settings("hsr_late", 0.1, weight=0.1, probes=2, start=0.6), start, progress=0.5
    )
    same(late, plain(start))
    assert stepper.price == 1
    _, stepper = gradients(Settings("hsr_last", 0.1, weight=0.1, probes=2, layers=1), start)
    assert [tuple(p.shape) for p in stepper.bounded] == [(1, 10, 5), (1, 10)]
    assert stepper.price == pytest.approx(1 + 9 / 2)


def test_all_methods_try_the_same_rates_each_once():
    rates = {method: [trial(method, k).rate for k in range(16)] for method in METHODS}
    assert len({tuple(found) for found in rates.values()}) == 1 and len(set(rates["sgd"])) == 16
    assert len({trial("hsr", k).weight for k in range(16)}) == 16
    assert {trial("hsr", k).probes for k in range(16)} == {1, 2, 4}
    assert {trial("hsr_every", k).interval for k in range(16)} == {2, 4, 8, 16}
    with pytest.raises(ValueError, match="sdg"):
        trial("sdg", 0)


@pytest.mark.parametrize("method", METHODS)
def test_equal_cost_costs_the_same(experiment, method):
    experiment = replace(experiment, epochs=20, price=6.0, widths=[32] * 5)
    for k in range(16):
        settings = trial(method, k)
        price = settings.mean_price(
            6
        )  # whole epochs: of 8 probes, 34 gradients a step, 4 instead of 3.5
        cost = epochs_of(experiment, settings, "cost")
        assert cost * price == pytest.approx(
            120, rel=0.06, abs=price / 2 if settings.probes == 8 else 0
        )
        assert epochs_of(experiment, settings, "steps") == 20


def test_one_that_diverges_says_so(experiment):
    (end,), _ = run(experiment, Settings("sgd", 1e300), "steps", Context(1))
    assert end["status"] == "diverged" and end["train_loss"] != end["train_loss"]


def test_parts_are_disjoint_and_images_are_averaged(experiment):
    data = load(experiment, Context(1))
    rows = [tuple(r) for part in (data.train, data.validation, data.test) for r in part[0].tolist()]
    assert len(rows) == 60 + 350 + 447 and len(set(rows)) >= len(rows) - 2
    words = [
        "dataset=surrogate",
        "dataset.train=90",
        "experiment.validation=20",
        "experiment.test=10",
    ]
    images = build_job(["experiment=hsr_flat_training", *WORDS, *words]).experiment
    x, y = load(images, Context(1)).train
    assert x.shape == (60, 192) and int(y.max()) <= 9
    assert 0 <= accuracy(network(images, 192, Context(1)), (x, y)) <= 1


def test_looks_are_even_in_logarithms():
    assert look_epochs(100, 2) == {0, 1, 10, 100} and look_epochs(7, 0) == set()


# -- choice and contest, from constructed tables -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def contest():
    words = ["experiment=hsr_flat_training", *WORDS, "experiment.method=[sgd,sam,hsr,hsr_every]"]
    return build_job(words).experiment


def held(contest, factor, seeds=10, shift=0.0):
    """Ends and curves of ten seeds in which λ₁ of hsr is `factor` times that of the others, which agree."""
    ends, curves = [], []
    for cell in contest.cells():
        method = cell.params["method"]
        times = factor if method == "hsr" else 1.0
        for seed in range(seeds):
            noise = 1 + 0.01 * ((seed * 7 + len(method)) % 5)
            row = {
                **cell.params,
                "seed": seed,
                "rate": 0.1,
                "status": "ok",
                "gradients": 10.0,
                "cpu_seconds": 1.0,
            }
            row |= {"radius": 0.0, "weight": 0.1, "probes": 2, "interval": 4}
            row |= {"train_loss": 0.1, "lambda_max": times * noise, "lambda_sup": 2 * times * noise}
            ends.append(
                {**row, "test_accuracy": 0.96 + 0.001 * noise + (shift if method == "hsr" else 0.0)}
            )
            for epoch, loss in enumerate((2.0, 0.5, 0.1 * noise)):
                at = {
                    **cell.params,
                    "seed": seed,
                    "epoch": epoch,
                    "cpu_seconds": float(epoch),
                    "test_accuracy": 0.9,
                }
                curves.append({**at, "train_loss": loss, "lambda_max": times * noise / loss})
    return {"ends": pd.DataFrame(ends), "curves": pd.DataFrame(curves)}


@pytest.mark.parametrize(("factor", "verdict"), [(0.5, "confirmed"), (2.0, "refuted")])
def test_the_contest_can_be_won_and_lost(contest, factor, verdict):
    analysis = analyse(contest, held(contest, factor))
    found = {c.name: c for c in analysis.claims()}
    assert found["flatter: hsr"].verdict == verdict
    marks = found["flatter: hsr"].variants
    assert marks.startswith(f"{verdict}: ") and ";" not in marks
    assert "most accurate at equal cost" in marks and "matched training loss" in marks
    assert found["accurate: hsr"].verdict == "confirmed"
    assert found["sparing helps: hsr_every"].verdict == ("confirmed" if factor > 1 else "refuted")
    assert (
        f"| HSR | rate 0.1, weight 0.1, probes 2, every 4 steps | {factor * 1.02:.3g} |"
        in analysis.documents()["methods.md"]
    )
    assert not any("no better than chance" in note for note in analysis.notes())
    tables = held(contest, factor)
    tables["ends"].loc[0, "train_loss"] = 2.4
    assert any(
        "SGD, settings 2" in n and "no better than chance" in n
        for n in analyse(contest, tables).notes()
    )
    main = next(
        s
        for s in analysis.statistics()
        if s.name == "log λ₁, most accurate at equal cost: hsr - sgd"
    )
    assert main.p == pytest.approx(2 / 2**10) and abs(main.effect) == 1
    assert math.exp(main.shift) == pytest.approx(factor, rel=0.05)


def test_no_difference_is_no_victory_and_lost_accuracy_is_seen(contest):
    analysis = analyse(contest, held(contest, 1.0, shift=-0.02))
    found = {c.name: c.verdict for c in analysis.claims()}
    assert found["flatter: hsr"] == "inconclusive" and found["accurate: hsr"] == "refuted"


def test_ten_seeds_reach_the_level_after_holm(contest):
    tests = [
        s
        for s in stats.correct(analyse(contest, held(contest, 0.5)).statistics())
        if s.label_a == "hsr"
    ]
    assert all(s.p_holm < 0.05 for s in tests if s.figure.startswith("log λ₁"))
    assert 23 * 2 / 2**10 < 0.05, "a family of the whole contest can, too"


def test_partial_tables_have_a_report(contest):
    whole = held(contest, 0.5, seeds=2)
    for methods in (["sgd"], ["hsr"], ["sgd", "hsr"], ["sam", "hsr_every"]):
        tables = {name: rows[rows["method"].isin(methods)] for name, rows in whole.items()}
        analysis = analyse(contest, tables)
        assert all(c.verdict != "not run" for c in analysis.claims()) and isinstance(
            analysis.notes(), list
        )


def test_matched_loss_is_read_at_the_same_loss():
    assert math.exp(at_loss([4.0, 1.0], [1.0, 16.0], 2.0)) == pytest.approx(4)
    assert math.isnan(at_loss([4.0, 1.0], [1.0, 16.0], 0.5)) and math.isnan(
        at_loss([4.0, 1.0], [1.0, -1.0], 2.0)
    )
    assert at_loss([1.0, 4.0, 0.5], [9.0, 1.0, 1.0], 2.0) == pytest.approx(math.log(9))


def test_the_contest_measures_what_was_chosen(contest):
    cells = {cell.label: cell for cell in contest.cells()}
    cell = next(
        c for c in cells.values() if c.params["method"] == "sgd" and c.params["budget"] == "cost"
    )
    tables = measure(contest, cell, Context(1))
    assert [row["budget"] for row in tables["ends"]] == ["cost"]
    assert tables["ends"][0]["rate"] == trial("sgd", cell.params["trial"]).rate
    assert tables["curves"][0]["epoch"] == 0
    with pytest.raises(SettingError, match=r"chosen\.sgd: expected 4"):
        replace(contest, chosen={})


def test_the_wide_search_has_the_weights_and_probes_that_were_asked_for():
    found = [trial(WIDE, k) for k in range(16)]
    assert {s.probes for s in found} == {1, 2, 4, 8} and all(
        1e-3 <= s.weight <= 1e-1 for s in found
    )
    assert [s.rate for s in found] == [trial("hsr", k).rate for k in range(16)]
