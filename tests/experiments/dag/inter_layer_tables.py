"""Made-up tables of the inter-layer experiments, whose claims have known answers."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pandas as pd

from experiments import certificates
from experiments.dag.exp6 import measure as exp6
from experiments.printed import statements
from runner.contract import Context, analyse, measure
from runner.curvature import verify
from runner.report.answers.reference import numbers_of
from runner.run.config.jobs import build_job
from runner.stats.scorecard import scorecard
from tests.experiments.tables import claims_of, grid, joined

SEEDS = (42, 43, 44, 45, 46)
CHECKPOINTS = ("init", "mid", "final")
SMALL = ["dataset.train=96", "dataset.test=32", "training.epochs=2"]
SMALL += ["metric.subsamples=1", "model.width=6"]


def quick(name, *overrides):
    """The experiment at its quick profile, made smaller still."""
    return build_job([f"experiment={name}", "profile=quick", *SMALL, *overrides]).experiment


def apart(table, share):
    """A factor of each row by which seeds differ, of mean 1."""
    return 1 + share * (table["seed"] - 44)


def origin(**keys):
    """Table `origin` of the authors' own networks and images."""
    table = grid(**keys, seed=SEEDS).assign(initial="published", order="published")
    return table.assign(train_records="official", test_records="official")


def measured(experiment, seeds=(1, 2), cells=()):
    """These cells, or all, measured at the first seed; their numbers a percent larger at each
    other: a measurement takes a second. Certificates would take most of it: one of each part is
    made, and stands for the others."""
    parts, made = {}, {}

    def once(*network, **about):
        part = about.get("part", "")
        if part not in made:
            made[part] = verify(*network, **about)
        return made[part]

    for cell in cells or experiment.cells():
        with patch.object(certificates, "verify", once), patch.object(exp6, "verify", once):
            columns_of = measure(experiment, cell, Context(seed=seeds[0]))
        for name, columns in columns_of.items():
            table = pd.DataFrame(columns)
            numbers = table.select_dtypes("float")
            for i, seed in enumerate(seeds):
                at_seed = {**(numbers * (1 + 0.01 * i)), **cell.params, "seed": seed}
                parts.setdefault(name, []).append(table.assign(**at_seed))
    return joined(parts)


def scores(analysis, name):
    """The scorecard of an analysis against the printed numbers."""
    return scorecard(analysis.measured(), numbers_of(name).read())


def complete(experiment, name, tables, values, beside=()):
    """Each printed statement has one claim, and each of so many published values its measurement.
    beside: names of companions with the same tables."""
    assert set(claims_of(experiment, tables)) == set(statements(name))
    analysis = replace(analyse(experiment, tables), beside=dict.fromkeys(beside, tables))
    found = scores(analysis, name)
    assert len(found) == values and "not run" not in set(found["verdict"])


def end_to_end(experiment, seeds=(1, 2), *, drawn=True):
    """The tables of all cells, of which a report can be made, and in which two seeds refute
    nothing. drawn: whether the report has figures."""
    tables = measured(experiment, seeds)
    analysis = analyse(experiment, tables)
    assert len(tables["certificate"]) and len(analysis.measured())
    assert bool(analysis.figures()) == drawn and analysis.statistics() is not None
    assert "refuted" not in {claim.verdict for claim in claims_of(experiment, tables).values()}
    return tables


def kept(make):
    """`make`, called once for the same arguments. The frames are shared, the dictionary is the
    caller's own."""
    made = {}

    def call(**arguments):
        key = repr(arguments)
        if key not in made:
            made[key] = make(**arguments)
        return dict(made[key])

    return call


@kept
def decay(
    depths=(8, 10, 12), plain="plain", plain_rate=0.1, residual_rate=0.02, scale=None, seeds=SEEDS
):
    """distances and networks with R = scale e^(−rate d) and C of the same rate, a little apart
    between seeds."""
    archs = (plain, "residual")
    networks = grid(depth=depths, arch=archs, checkpoint=CHECKPOINTS, seed=seeds, images=(0, 1, 2))
    distances = networks.merge(grid(distance=range(max(depths))), how="cross")
    distances = distances[distances["distance"] < distances["depth"]].reset_index(drop=True)
    by_seed = apart(distances, 0.002)
    rate = distances["arch"].map({plain: plain_rate, "residual": residual_rate}) * by_seed
    shape = np.exp(-rate * distances["distance"])
    size = distances["checkpoint"].map(scale or {"init": 0.1, "mid": 0.5, "final": 1.0}) * by_seed
    values = {"pairs": distances["depth"] - distances["distance"], "C": shape, "R": size * shape}
    means = {"rho": 2.59, "lyapunov_1": -0.02, "lyapunov_log_norm": 0.2, "test_accuracy": 0.498}
    by_network = {name: mean * apart(networks, 0.002) for name, mean in means.items()}
    return {
        "distances": distances.assign(**values, D=2.0, R_examples=1.0, gn=1.0, tensor=0.5),
        "networks": networks.assign(**by_network, status="ok"),
    }


def gaps(values, curvature, accuracy, seeds=SEEDS, largest_tensor=0.0):
    """Tables of Exps. 3 and 3b. values: activation -> gap, the same at each checkpoint, a bit apart
    between seeds."""
    pairs = grid(activation=values, seed=seeds, checkpoint=CHECKPOINTS)
    networks = pairs.merge(grid(images=range(3)), how="cross")
    distances = networks.merge(grid(distance=range(3)), how="cross")
    gap = distances["activation"].map(values)
    own = networks["activation"]
    parts = {"pairs": 3 - distances["distance"], "gn": 1.0, "gap_of_pairs": gap}
    return {
        "pairs": pairs.assign(frob_tensor=largest_tensor),
        "distances": distances.assign(**parts, tensor=gap * apart(distances, 0.001)),
        "networks": networks.assign(
            sigma_pp_squared=own.map(curvature),
            test_accuracy=own.map(accuracy) * apart(networks, 0.001),
        ),
    }
