"""Values of sentences, from the published cells and verdicts by code that imports nothing of the
project: counts, means, ratios of means, means of ratios, medians, and a few statistics of one
statement."""

import json
import math
import re
import tomllib
from decimal import Decimal
from functools import cache
from itertools import permutations

import numpy as np
import pandas as pd
import yaml
from scipy.special import expit
from scipy.stats import spearmanr

from tests.experiments.stored import (
    PUBLISHED,
    ROOT,
    SEEDS,
    cells,
    chosen,
    manifest,
    rows,
    table,
    verdicts,
)

DAG = (
    *("exp1_resonance", "exp1_deep", "exp1b_spectral_norm", "exp2_bottleneck", "exp3_gn_gap"),
    *("exp3_stochastic", "exp3b_layernorm", "exp4_diamond", "exp5_attention", "exp6_resnet18"),
)
EXP1 = ("exp1_resonance", "exp1b_spectral_norm", "exp1_deep")
REBUILT = (*EXP1, "exp3_gn_gap", "exp3_stochastic", "exp3b_layernorm", "exp4_diamond")
HSR, ATTENTION = ("hsr_gradient", "hsr_regularization"), ("attention_hessian", "attention_newton")
PAPERS = (*DAG, *HSR, *ATTENTION, "ws_bound", "scalar_spectrum")
TESTED = ("exact match", "reproduced", "not reproduced", "inconclusive")
DECIDED = ("confirmed", "minor error", "refuted", "inconclusive")
WAYS = ("as described", "authors' configuration", "recovered protocol")
SIMILAR = {"protocol", "network", "base_width", "probes", "initial", "power_steps"}
"""Keys in which two tests of one printed number may differ."""

# --- counts of verdicts


@cache
def scores(*names):
    """The rows of scorecards; of all papers, without a name."""
    found = [verdicts(name).assign(experiment=name) for name in names or PAPERS]
    return pd.concat(found, ignore_index=True)


def tests(*names, verdict=TESTED, **keys):
    """How many tests of printed numbers have one of these verdicts."""
    found = scores(*names)
    for column, value in keys.items():
        found = found[found[column] == value]
    return int(found.verdict.isin([verdict] if isinstance(verdict, str) else verdict).sum())


def of_verdicts(*names, **keys):
    return tuple(tests(*names, verdict=verdict, **keys) for verdict in TESTED)


def agreeing(*names):
    return tests(*names, verdict=("exact match", "reproduced"))


def printed(*names):
    """Different printed numbers: one that is tested as described and in another way is one."""
    count = 0
    for name in names or PAPERS:
        found = scores(name)
        found = found[found.verdict.isin(TESTED)]
        first = list(found.columns[: found.columns.get_loc("paper_mean") + 1])
        keys = [key for key in first if key not in SIMILAR] + ["source"]
        for _, group in found.groupby(keys, dropna=False):
            otherwise = (group.way != "as described").sum()
            count += otherwise or len(group)
    return int(count)


def one_digit(*names):
    """Exact matches of numbers whose printed form has one digit after leading zeros."""
    exact = scores(*names)
    exact = exact[exact.verdict == "exact match"]
    last = 2 * exact.resolution
    return int((last > 0).mul((exact.paper_mean.abs() / last).round() < 10).sum())


def statements(*names, verdict):
    claims = pd.concat(verdicts(name, "claims") for name in names)
    own = claims[~claims.extension]
    return int((own.verdict == verdict).sum())


def clauses(group="", verdict=DECIDED):
    """Clauses of the audit of a paper that count, or that have the verdict."""
    claims = verdicts("paper_audit", "claims")
    papers = "WS bound", "HSR", "DAG", "Scalar spectrum", "Attention"
    claims = claims[claims.group.isin([group] if group else papers)]
    return int(claims.verdict.isin([verdict] if isinstance(verdict, str) else verdict).sum())


def formulas(group):
    return tuple(clauses(group, verdict) for verdict in DECIDED[:3])


def with_notation(group):
    """Clauses that are right, have an error of class C, of class B, and a major one."""
    right, minor, major = formulas(group)
    claims = verdicts("paper_audit", "claims")
    claims = claims[(claims.group == group) & (claims.verdict == "minor error")]
    notation = int(claims.detail.str.contains("class C,").sum())
    return right, notation, minor - notation, major


def largest_growth():
    """H4.2b: the value of the authors' results that decides."""
    return float(verdicts("exp4_diamond", "claims").set_index("name").authors_value["H4.2b growth"])


def published_errata():
    """Entries of the published errata of all papers; those without an id are places not checked."""
    path = PUBLISHED / "paper_audit" / "errata.json"
    return [entry for entry in json.loads(path.read_text(encoding="utf-8")) if entry["id"]]


def major_errors():
    """Entries of class A in the published errata."""
    return sum(entry["class"] == "A" for entry in published_errata())


def failing(name):
    """Statements of the paper that do not hold."""
    return sum(statements(name, verdict=verdict) for verdict in ("refuted", "minor error"))


def errors(paper, kind):
    """Entries of a class in the published errata of a paper."""
    return sum((e["paper"], e["class"]) == (paper, kind) for e in published_errata())


def lemmas_with_another_step():
    """Lemmas of the attention paper whose proof has an entry of class B."""
    entries = [e for e in published_errata() if (e["paper"], e["class"]) == ("attention", "B")]
    places = [e["place"] for e in entries if re.search(r"\bproofs?\b", e["place"])]
    return len(set(re.findall(r"\b[A-Z]\.\d+", " ".join(places))))


def judged(*names):
    return tuple(
        statements(*names, verdict=verdict) for verdict in ("confirmed", "refuted", "inconclusive")
    )


def reproduced(*names):
    return agreeing(*names), *of_verdicts(*names)[2:]


def beyond_seeds():
    """Inconclusive tests that no number of our seeds decides."""
    found = scores()
    return int(((found.seeds_needed == np.inf) & (found.verdict == "inconclusive")).sum())


def margin():
    """The usual margin of "reproduced", in percent of the printed value."""
    found = scores("exp1_resonance")
    return float((100 * found.margin / found.paper_mean.abs()).round(6).mode()[0])


def bounds(holding=False):
    """Bounds of the attention paper; holding: that no search has exceeded."""
    largest = rows("attention_hessian", "bounds", status="ok").groupby("bound").ratio.max()
    return int((largest <= 1 + 1e-9).sum()) if holding else largest.size


def oldest_python():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return Decimal(project["requires-python"].removeprefix(">=").partition(",")[0])


def hours(*names):
    spent = [float(c["cpu_seconds"]) for name in names for c in manifest(name)["cells"]]
    return float(sum(spent)) / 3600


def trained_as_described():
    """(missing, all) trainings of Experiment 2 at the width that its text states."""
    found = [cell for _, cell in cells("exp2_bottleneck", width=256)]
    stored = sum(cell["params"]["phase"] == "trained" for cell in found)
    widths = {(cell["params"]["depth"], cell["params"]["d_u"]) for cell in found}
    return len(widths) * len(SEEDS) - stored, len(widths) * len(SEEDS)


# --- printed values, settings


@cache
def reference(experiment, table):
    """The rows of an experiment, with the digits as printed; table: "numbers" or "statements"."""
    paths = (ROOT / "experiments" / "reference").glob(f"*/{table}.csv")
    found = pd.concat(pd.read_csv(path, dtype=str) for path in paths)
    return found[found["experiment"] == experiment]


def paper(experiment, column="mean", **keys):
    """A printed value, from the row of the reference with these keys."""
    found = reference(experiment, "numbers")
    for key, value in keys.items():
        found = found[found[key] == str(value)]
    (value,) = found[column].unique()
    return Decimal(value)


def said(experiment, statement, column="number"):
    """A number of a printed statement."""
    found = reference(experiment, "statements")
    (value,) = found[found["name"] == statement][column].dropna().unique()
    return Decimal(value)


def said_range(experiment, statement):
    """The range "0.28 to 0.39" in the text of a printed statement."""
    found = reference(experiment, "statements")
    (text,) = found[found["name"] == statement]["text"].dropna()
    return tuple(map(Decimal, re.search(r"(\d+\.\d+) to (\d+\.\d+)", text).groups()))


def setting(name, key):
    """A value of a file of conf/, by its path."""
    value = yaml.safe_load((ROOT / "conf" / f"{name}.yaml").read_text(encoding="utf-8"))
    for part in key.split("."):
        value = value[part]
    return value


def year(paper):
    return tomllib.loads((ROOT / "experiments" / "papers.toml").read_text())[paper]["year"]


# --- statistics


def fixed(value, digits):
    """The value with this number of decimals."""
    return Decimal(f"{value:.{digits}f}")


def rounded(value, digits):
    """The value with this number of significant digits."""
    return Decimal(f"{value:.{digits}g}")


def span(values):
    return float(min(values)), float(max(values))


def mean(name, tab, column, over=None, **keys):
    """The mean of a column, or the mean of its ratios to another."""
    found = rows(name, tab, **keys)
    values = found[column] if over is None else found[column] / found[over]
    return float(values.mean())


def gap(name, **keys):
    """Σ‖H^T‖ / Σ‖H^GN‖ over the pairs of each seed, on the paper's images; by seed."""
    sums = rows(name, "distances", images=0, **keys).groupby("seed")[["tensor", "gn"]].sum()
    return sums.tensor / sums.gn


def curve(name, value="R", model=None, **keys):
    """A quantity on the paper's images, seeds by distances."""
    found = chosen(table(name, "distances", **(model or {})), images=0, **keys)
    return found.pivot_table(index="seed", columns="distance", values=value)


def fall(name, **keys):
    """Orders of magnitude from the least to the largest distance, mean over seeds."""
    wide = curve(name, **keys)
    return float(np.log10(wide.iloc[:, 0] / wide.iloc[:, -1]).mean())


def decay(activation, arch, checkpoint="init", estimator="published", statistics="running"):
    """R(0)/R(4) of ResNet-18, a ratio of means over the seeds."""
    keys = {"activation": activation, "arch": arch, "checkpoint": checkpoint}
    keys |= {"estimator": estimator, "statistics": statistics}
    means = rows("exp6_resnet18", "distances", **keys).groupby("distance").R.mean()
    return float(means[0] / means[4])


def resnet(column, activation, arch, distance, checkpoint, statistics="running", over=None):
    keys = {"activation": activation, "arch": arch, "checkpoint": checkpoint}
    keys |= {"estimator": "engine", "statistics": statistics, "distance": distance}
    return mean("exp6_resnet18", "distances", column, over, **keys)


ARCHS = ("resnet18", "plain_resnet18")
IMAGES = {"estimator": "engine", "statistics": "calibrated"}
"""Untrained, with BatchNorm's statistics of training images."""
TRAINED = {"estimator": "engine", "checkpoint": "final"}


def printed_decays():
    names = (f"decay of the plain {activation} network" for activation in ("ReLU", "SiLU"))
    return tuple(said("exp6_resnet18", name) for name in names)


def printed_half(**keys):
    """R(0)/R(4) halfway, from the two printed norms."""
    keys |= {"metric": "R", "checkpoint": "mid"}
    first, last = (paper("exp6_resnet18", distance=d, **keys) for d in (0, 4))
    return rounded(first / last, 2)


def printed_gap(**keys):
    return paper("exp6_resnet18", metric="gap", checkpoint="final", distance=1, **keys)


def table_n3(depth, checkpoint, metric, arch="plain"):
    keys = {"depth": depth, "checkpoint": checkpoint, "metric": metric, "arch": arch}
    return keys | {"initial": "published"}


def decays(arch, **keys):
    return tuple(decay(activation, arch, **keys) for activation in ("relu", "silu"))


def gap_of_resnet(arch, checkpoint, statistics="running"):
    """‖H^T‖/‖H^GN‖ of SiLU at distance 1, a mean of ratios over the seeds."""
    keys = {"activation": "silu", "arch": arch, "checkpoint": checkpoint, "distance": 1}
    keys |= {"estimator": "engine", "statistics": statistics}
    return mean("exp6_resnet18", "distances", "tensor", "gn", **keys)


def attention_gap(protocol, checkpoint):
    keys = {"network": "attention", "images": 0, "protocol": protocol, "checkpoint": checkpoint}
    return mean("exp5_attention", "blocks", "gap", **keys)


def accuracy(activation, arch):
    keys = {"activation": activation, "arch": arch, "checkpoint": "final", "statistics": "running"}
    return 100 * mean("exp6_resnet18", "networks", "test_accuracy", **keys)


def phi(partition, of="hessian", last=False, **keys):
    """Medians over seeds of the share outside the blocks, one for each network."""
    found = rows("phi_block_diagonal", "phi", partition=partition, part=of, **keys)
    step = found.step.max() if last else 0
    found = chosen(found, step=step)
    return found.groupby(["architecture", "residual", "classes"]).phi.median()


def slower_decay():
    """log10 of the plain rate of log R over the residual one before training, mean over seeds, one
    for each depth."""
    found = rows("exp1_resonance", "distances", images=0, checkpoint="init")
    rates = {}
    for key, part in found.groupby(["depth", "arch", "seed"]):
        rates[key] = abs(np.polyfit(part.distance, np.log(part.R), 1)[0])
    rates = pd.Series(rates).unstack(1)
    return np.log10(rates.plain / rates.residual).groupby(level=0).mean()


def curvature():
    """(gap, E[σ''²]) of each activation before training, means over the seeds, Experiment 3."""
    keys = {"images": 0, "checkpoint": "init"}
    squares = rows("exp3_gn_gap", "networks", **keys).groupby("activation").sigma_pp_squared.mean()
    gaps = {a: gap("exp3_gn_gap", activation=a, checkpoint="init").mean() for a in squares.index}
    return pd.Series(gaps), squares


def fit_of_the_gap():
    gaps, squares = curvature()
    return float(np.corrcoef(gaps, squares)[0, 1] ** 2)


def power_of_the_gap():
    """Slope of log gap on log E[σ''²] over the means over seeds of the smooth activations."""
    gaps, squares = curvature()
    smooth = ["softplus", "silu", "gelu"]
    return float(np.polyfit(np.log(squares[smooth]), np.log(gaps[smooth]), 1)[0])


def p_of_the_ranking():
    """Two-sided p of Spearman's ρ over all orders of the five activations."""
    gaps, squares = curvature()
    gaps = gaps.where(gaps > 1e-6, 0.0)
    ranks, others = squares.rank().to_numpy(), gaps.rank().to_numpy()
    found = np.corrcoef(ranks, others)[0, 1]
    orders = [np.corrcoef(ranks, order)[0, 1] for order in permutations(others)]
    return float(np.mean(np.abs(orders) >= found - 1e-12))


def discrepancy(checkpoint, probes=100):
    """|stochastic / exact gap − 1| in percent of means over seeds, mean over draws and
    activations."""
    found = rows("exp3_stochastic", "draws", checkpoint=checkpoint, probes=probes, status="ok")
    means = found.groupby(["activation", "draw"])[["gap_exact", "gap_stochastic"]].mean()
    return float(100 * (means.gap_stochastic / means.gap_exact - 1).abs().mean())


def rate_of_the_error(checkpoint):
    """Slope of log relative standard deviation over the draws on log m, mean over seeds."""
    found = rows("exp3_stochastic", "draws", checkpoint=checkpoint, status="ok")
    found = found.assign(ratio=found.gap_stochastic / found.gap_exact)
    stds = found.groupby(["seed", "activation", "probes"]).ratio.std()
    slopes = []
    for _, part in stds.groupby(["seed", "activation"]):
        probes = part.index.get_level_values("probes").astype(float)
        slopes.append(np.polyfit(np.log(probes), np.log(part), 1)[0])
    return float(np.mean(slopes))


def across(**keys):
    """R across the branches of Experiment 4 before training: R(4)/R(2), a ratio of means over the
    seeds, by configuration."""
    found = rows("exp4_diamond", "distances", images=0, relation="cross", checkpoint="init", **keys)
    means = found.groupby(["branch_depth", "merge", "activation", "distance"]).R.mean().unstack()
    return (means[4] / means[2]).dropna()


def steps_without_norm():
    """R(d+1)/R(d) across the branches without LayerNorm before training, ratios of means."""
    found = chosen(table("exp4_diamond", "distances", norm=False), relation="cross")
    found = chosen(found, images=0)
    keys = ["branch_depth", "merge", "activation", "distance"]
    means = found.groupby(keys).R.mean().unstack()
    ratios = means.shift(-1, axis=1) / means
    return ratios.stack().dropna()


def ranks_beyond():
    """Rank of the mean Gauss–Newton block less min(d_u, K − 1), the largest."""
    found = rows("exp2_bottleneck", "ranks", block="mean", part="gauss_newton")
    return int((found["rank"] - np.minimum(found.d_u, 99)).max())


def near_output():
    """Mean R(v,v) of the last third of 32 blocks over that of the others, mean over seeds."""
    found = rows("exp1_deep", "pairs", depth=32, arch="plain", checkpoint="final", distance=0)
    found = found.assign(block=found.v.str.removeprefix("block").astype(int))
    late = found.block >= 32 - 32 // 3
    means = found.groupby(["seed", late]).R.mean().unstack()
    return float((means[True] / means[False]).mean())


def deep(value):
    """A quantity of the trained plain networks of depth 16, seeds by distances."""
    return curve("exp1_deep", value, depth=16, arch="plain", checkpoint="final")


def slope_beyond():
    """Slope of log10 R on the distance beyond half the depth, mean over seeds."""
    wide = np.log10(deep("R"))
    wide = wide.loc[:, wide.columns > 8]
    return float(np.mean([np.polyfit(wide.columns, seed, 1)[0] for _, seed in wide.iterrows()]))


def rise_of_coupling():
    """Largest step of the mean C(d) from one distance to the next."""
    return float(deep("C").mean().diff().max())


def shift_of_coupling():
    """C(d) after training less before, residual networks of depth 10, mean over d >= 1."""
    keys = {"value": "C", "depth": 10, "arch": "residual"}
    after, before = (curve("exp1_resonance", **keys, checkpoint=c) for c in ("final", "init"))
    return float((after - before).loc[:, 1:].mean(axis=1).mean())


def over_a_constant():
    """Test loss of attention on the recovered targets over their variance: 1 − E[‖X‖]²/n of
    n = 128 standard normal entries, and the noise."""
    keys = {"network": "attention", "protocol": "recovered", "checkpoint": "final"}
    mean_norm = math.sqrt(2) * math.exp(math.lgamma(64.5) - math.lgamma(64))
    return mean("exp5_attention", "networks", "test_loss", **keys) / (
        1 - mean_norm**2 / 128 + 0.1**2
    )


def ends(**keys):
    """The unique ends of the searches of the WS-bound paper."""
    keys = {"activation": "sigmoid", "hidden": 3, **keys}
    return rows("ws_bound", "critical_points", converged=1, duplicate=0, **keys)


CALIBRATED = {"protocol": "fitted", "rate": 0.01}


def median_of_data_sets(statistic, found):
    return float(np.median([statistic(part) for _, part in found.groupby("seed")]))


def correlations(column, **keys):
    """(ρ, p) of Spearman's correlation with the bound, by data set."""
    return [spearmanr(e[column], e.lambda_sup) for _, e in ends(**keys).groupby("seed")]


def converged(rate):
    """Share in percent of the starts that converge by the printed rule, mean over data sets."""
    keys = {"activation": "sigmoid", "protocol": "printed", "rate": rate, "hidden": 3}
    return 100 * mean("ws_bound", "search", "converged", "starts", **keys)


def walsh_median(values):
    """The Hodges–Lehmann estimate: the median of all means of two values."""
    values = np.asarray(values)
    i, j = np.triu_indices(len(values))
    return float(np.median((values[i] + values[j]) / 2))


def shift(other, scale=lambda values: values):
    """By data set: the shift of λ₁ from another method to HSR, sharp starts."""
    found = rows("hsr_regularization", "endpoints", reading="every_step", group="sharp")
    shifts = []
    for _, part in found.groupby("seed"):
        wide = scale(part.pivot(index="start", columns="method", values="lambda_max"))
        shifts.append(walsh_median((wide.hsr - wide[other]).dropna()))
    return shifts


def shift_of_flat(method):
    """By data set: the shift of log λ₁ from plain descent to a method, flat starts."""
    found = rows("hsr_regularization", "endpoints", reading="every_step", group="flat")
    shifts = []
    for _, part in found.groupby("seed"):
        wide = np.log(part.pivot(index="start", columns="method", values="lambda_max"))
        shifts.append(walsh_median((wide[method] - wide.gd).dropna()))
    return shifts


def ablated(part):
    """By data set: the shift of λ₁ from the trace as a penalty to a part of the bound."""
    shifts = []
    for _, rows_of_seed in table("hsr_regularization", "ablation").groupby("seed"):
        wide = rows_of_seed.pivot(index="start", columns="method", values="lambda_max")
        shifts.append(walsh_median((wide[part] - wide.trace).dropna()))
    return shifts


def overfitting():
    """By data set: the shift from plain descent to HSR of F1 on training less on test data."""
    shifts = []
    for _, part in table("hsr_regularization", "ablation").groupby("seed"):
        part = part.assign(gap=part.f1_train - part.f1_test)
        wide = part.pivot(index="start", columns="method", values="gap")
        shifts.append(walsh_median((wide.hsr - wide.gd).dropna()))
    return shifts


def shares_with_a_penalty(level):
    """By weight: a quantile of the bound with a penalty on V over that without, two digits."""
    ends = table("ws_bound", "penalised")
    shares = []
    for weight in sorted(set(ends.penalty) - {0.0}):
        ratios = [
            np.quantile(part[part.penalty == weight].lambda_sup, level)
            / np.quantile(part[part.penalty == 0].lambda_sup, level)
            for _, part in ends.groupby("seed")
        ]
        shares.append(rounded(float(np.median(ratios)), 2))
    return shares


def setting_of_hsr(key):
    return setting("experiment/hsr_regularization", f"experiment.{key}")


def starting_points():
    """Sharp and flat starting points of a data set, in hundreds."""
    found = rows("hsr_regularization", "search", protocol="fitted")
    return tuple(int(round(found[kind].mean(), -2)) for kind in ("sharp", "flat"))


def fastest_gradients():
    """Form of the exact gradient with the least median time in every run, by number of
    parameters."""
    found = rows("hsr_gradient", "cost", status="ok", varied="dimension")
    found = found[found.form != "numerical"]
    times = found.groupby(["dimension", "seed", "form"]).seconds.median().unstack()
    forms = times.idxmin(axis=1).groupby(level=0).unique()
    return {size: form[0] for size, form in forms.items() if len(form) == 1}


def last(fastest, form):
    """The largest size up to which the form is the fastest."""
    others = [size for size, name in fastest.items() if name != form]
    return max(size for size in fastest if size < min(others))


def between(fastest, form):
    return [size for size, name in fastest.items() if name == form]


def gain():
    """Time of three-point differences of the double sum over that of its analytic gradient, both as
    matrices: the smallest of the sizes, median over the data sets."""
    found = rows("hsr_gradient", "cost", status="ok", form=["matrix", "numerical"])
    keys = ["seed", "varied", "samples", "dimension"]
    times = found.pivot_table(index=keys, columns="form", values="seconds").dropna()
    return float((times.numerical / times.matrix).groupby("seed").min().median())


def error_of_the_union():
    """Difference from the dense eigenvalues over the largest, of the union of the cells."""
    found = table("scalar_spectrum", "relu_cells")
    found = found.assign(error=(found.eigenvalue - found.dense).abs(), size=found.dense.abs())
    largest = found.groupby("seed")[["error", "size"]].max()
    return float((largest.error / largest["size"]).max())


def sharpest_settled():
    """Largest sharpness · rate / 2 in the last ten steps of runs whose loss stands still."""
    found = table("scalar_spectrum", "edge").sort_values("step")
    keys = ["network", "width", "start", "factor", "seed"]
    highest = []
    for _, run in found.groupby(keys):
        end = run.tail(10)
        still = end.loss.max() - end.loss.min() <= 1e-6 * end.loss.mean()
        if still and not (run.status == "diverged").any():
            highest.append((end.sharpness * end.rate / 2).max())
    return float(max(highest))


def led(**keys):
    """Where the ends of the printed rule lead, sigmoid."""
    return rows("ws_bound", "polished", activation="sigmoid", protocol="printed", **keys)


def count(values, *kinds):
    return int(values.isin(kinds).sum())


def gains(stage, size):
    """F1 of flat less sharp points, one for each further draw of the data."""
    found = rows("ws_bound", "draws", stage=stage, test_samples=size)
    return found.f1_low - found.f1_high


def printed_share():
    """Converging starts of the paper in percent, N = 3."""
    return int(100 * paper("ws_bound", metric="converged", hidden=3) / 500)


def tightness(found):
    return float((found.lambda_sup / found.lambda_max).median())


def middle(tests):
    return float(np.median([test.statistic for test in tests]))


def left_of_the_bound():
    """Theorem 7 with weights that cancel: last over largest bound, the largest of the paths."""
    keys = {"path": "cancelling", "activation": "sigmoid", "protocol": "fitted"}
    found = rows("ws_bound", "limits", **keys).sort_values("error_max", ascending=False)
    paths = found.groupby(["hidden", "seed"]).lambda_sup
    return float((paths.last() / paths.max()).max())


def related(column, rate):
    """Data sets with a significant positive correlation with the bound, by the printed rule."""
    tests = correlations(column, protocol="printed", rate=rate)
    return sum(test.statistic > 0 and test.pvalue < 0.01 for test in tests)


def unrelated(column, rate):
    """Data sets without a significant correlation with the bound, by the printed rule."""
    return sum(test.pvalue >= 0.01 for test in correlations(column, protocol="printed", rate=rate))


def longer_steps():
    """A-SAM's perturbation over SAM's, θ uniform in ±10, 50 points: (median, 5 %, 95 %) of 400."""
    found = [length_of_a_step(np.random.default_rng(seed)) for seed in range(400)]
    return tuple(rounded(q, 1) for q in np.quantile(found, (0.5, 0.05, 0.95)))


def length_of_a_step(generator):
    centres = np.repeat([1.0, -1.0], 25)
    x = generator.normal(centres[:, None], 2**0.5, (50, 2))
    theta = generator.uniform(-10, 10, 13)
    w, b, output = theta[:6].reshape(3, 2), theta[6:9], theta[9:12]
    hidden = expit(x @ w.T + b)
    error = expit(hidden @ output + theta[12]) - (centres < 0)
    back = error[:, None] * output * hidden * (1 - hidden)
    parts = (back.T @ x).ravel(), back.sum(0), hidden.T @ error, [error.sum()]
    gradient = np.concatenate(parts)
    scale = np.abs(theta)
    return np.linalg.norm(scale**2 * gradient) / np.linalg.norm(scale * gradient)


def bounds_and_saddles():
    """Rank correlations of λ_inf and λ_D at the ends of HSR: (least, largest, how many)."""
    keys = {"reading": "every_step", "method": "hsr", "status": "ok"}
    found = rows("hsr_regularization", "endpoints", **keys)
    low = 2 * found["mean"] - found.lambda_sup
    groups = found.assign(low=low).groupby(["group", "seed"])
    values = [spearmanr(part.low, part.lambda_min).statistic for _, part in groups]
    return *(rounded(value, 2) for value in span(values)), len(values)
