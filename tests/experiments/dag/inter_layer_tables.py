"""Made-up tables of the inter-layer experiments, whose claims have known answers."""

from collections.abc import Iterable
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

from experiments import certificates
from experiments.dag.exp6 import measure as exp6
from experiments.printed import statements
from runner.contract import Cell, Claim, Context, Experiment, analyse, measure
from runner.curvature import verify
from runner.report.compare import scorecard
from runner.report.reference import read_reference, reference_path
from runner.run.config import build_job

SEEDS = (42, 43, 44, 45, 46)
CHECKPOINTS = ("init", "mid", "final")


def quick(name: str, *overrides: str) -> Experiment:
    """The experiment at its quick profile, made smaller still."""
    small = [
        "dataset.train=96",
        "dataset.test=32",
        "training.epochs=2",
        "metric.subsamples=1",
        "model.width=6",
    ]
    return build_job([f"experiment={name}", "profile=quick", *small, *overrides]).experiment


_CLAIMED: list[tuple[Experiment, dict[str, pd.DataFrame], list[Claim]]] = []


def claims(experiment: Experiment, tables: dict[str, pd.DataFrame]) -> list[Claim]:
    """The claims of these tables, decided once for the same frames."""
    for known, frames, found in _CLAIMED:
        if (
            known is experiment
            and frames.keys() == tables.keys()
            and all(frames[n] is t for n, t in tables.items())
        ):
            return found
    found = analyse(experiment, tables).claims()
    _CLAIMED[:] = [*_CLAIMED[-19:], (experiment, dict(tables), found)]
    return found


def verdicts(experiment: Experiment, tables: dict[str, pd.DataFrame], name: str) -> dict[str, str]:
    """part -> verdict of the one claim of that name; {"": verdict} where it has no parts."""
    (claim,) = [c for c in claims(experiment, tables) if c.name == name]
    others = {f"{part} (other seeds)": v for part, v in claim.other_seeds.items()}
    return {**(claim.variants or {"": claim.verdict}), **others}


def verdict(experiment: Experiment, tables: dict[str, pd.DataFrame], name: str) -> str:
    """Of the one claim of that name."""
    (found,) = [c.verdict for c in claims(experiment, tables) if c.name == name]
    return found


def measured(
    experiment: Experiment, seeds: tuple[int, ...] = (1, 2), cells: Iterable[Cell] = ()
) -> dict[str, pd.DataFrame]:
    """These cells, or all, measured at the first seed; their numbers a percent larger at each
    other: a measurement takes a second. Certificates would take most of it: one of each part is
    made, and stands for the others."""
    parts: dict[str, list[pd.DataFrame]] = {}
    made: dict[str, Any] = {}

    def once(*network: Any, **about: Any) -> Any:
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
    return {name: pd.concat(found, ignore_index=True) for name, found in parts.items()}


def check(experiment: Experiment, tables: dict[str, pd.DataFrame], /, **expected: str) -> None:
    """The verdicts of claims: confirmed="a; b" where the claims of these names are confirmed."""
    of = {c.name: c.verdict for c in claims(experiment, tables)}
    for verdict, names in expected.items():
        for name in names.split("; "):
            assert of[name] == verdict.replace("_", " "), (
                f"{name}: expected {verdict}, found {of[name]}"
            )


def complete(
    experiment: Experiment, name: str, tables: dict[str, pd.DataFrame], values: int
) -> None:
    """Each printed statement has one claim, and each of so many published values its
    measurement."""
    assert sorted(c.name for c in claims(experiment, tables)) == sorted(statements(name))
    scores = scorecard(analyse(experiment, tables).measured(), read_reference(reference_path(name)))
    assert len(scores) == values and "not run" not in set(scores["verdict"])


def end_to_end(experiment: Experiment, seeds: tuple[int, ...] = (1, 2)) -> dict[str, pd.DataFrame]:
    """The tables of all cells, of which a report can be made, and in which two seeds refute
    nothing."""
    tables = measured(experiment, seeds)
    analysis = analyse(experiment, tables)
    assert len(tables["certificate"]) and len(analysis.measured())
    assert analysis.figures() and analysis.statistics() is not None
    assert "refuted" not in {c.verdict for c in claims(experiment, tables)}
    return tables


def kept(make):
    """`make`, called once for the same arguments. The frames are shared, the dictionary is the
    caller's own."""
    made: dict[str, dict[str, pd.DataFrame]] = {}

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
    keys = product(depths, (plain, "residual"), CHECKPOINTS, seeds, (0, 1, 2))
    networks = pd.DataFrame(keys, columns=["depth", "arch", "checkpoint", "seed", "images"])
    jitter = 1 + 0.002 * (networks["seed"] - 44)
    distances = networks.merge(pd.DataFrame({"distance": range(max(depths))}), how="cross")
    distances = distances[distances["distance"] < distances["depth"]].reset_index(drop=True)
    apart = 1 + 0.002 * (distances["seed"] - 44)
    rate = distances["arch"].map({plain: plain_rate, "residual": residual_rate}) * apart
    shape = np.exp(-rate * distances["distance"])
    size = distances["checkpoint"].map(scale or {"init": 0.1, "mid": 0.5, "final": 1.0}) * apart
    values = {"pairs": distances["depth"] - distances["distance"], "C": shape, "R": size * shape}
    means = {"rho": 2.59, "lyapunov_1": -0.02, "lyapunov_log_norm": 0.2, "test_accuracy": 0.498}
    return {
        "distances": distances.assign(**values, D=2.0, R_examples=1.0, gn=1.0, tensor=0.5),
        "networks": networks.assign(
            **{name: mean * jitter for name, mean in means.items()}, status="ok"
        ),
    }


def gaps(values, curvature, accuracy, seeds=SEEDS, largest_tensor=0.0):
    """Tables of Exps. 3 and 3b. values: activation -> gap, the same at each checkpoint, a bit apart
    between seeds."""
    columns = ["activation", "seed", "checkpoint"]
    pairs = pd.DataFrame(product(values, seeds, CHECKPOINTS), columns=columns).assign(
        frob_tensor=largest_tensor
    )
    networks = pairs[columns].merge(pd.DataFrame({"images": range(3)}), how="cross")
    distances = networks.merge(pd.DataFrame({"distance": range(3)}), how="cross")
    own, jitter = networks["activation"], 1 + 0.001 * (networks["seed"] - 44)
    networks = networks.assign(
        sigma_pp_squared=own.map(curvature), test_accuracy=own.map(accuracy) * jitter
    )
    gap, apart = distances["activation"].map(values), 1 + 0.001 * (distances["seed"] - 44)
    parts = {
        "pairs": 3 - distances["distance"],
        "gn": 1.0,
        "tensor": gap * apart,
        "gap_of_pairs": gap,
    }
    return {"distances": distances.assign(**parts), "networks": networks, "pairs": pairs}
