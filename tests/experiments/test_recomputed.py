"""Twenty printed comparisons, computed again from the stored cells by code that imports nothing of
the project."""

import csv
import gzip
import io
import json
import math
import zipfile
from functools import cache
from pathlib import Path

import pytest
from scipy.stats import t

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED, REFERENCE = ROOT / "outputs" / "published", ROOT / "experiments" / "reference"
SEEDS = (42, 43, 44, 45, 46)


@cache
def cells(experiment):
    """(name, content) of each cell.json of the paper's seeds with the settings of the report."""
    key = json.loads((PUBLISHED / experiment / "manifest.json").read_text())["settings_key"]
    with zipfile.ZipFile(PUBLISHED / experiment / "cells.zip") as archive:
        names = [name for name in archive.namelist() if name.endswith("/cell.json")]
        found = [(name, json.loads(archive.read(name))) for name in names]
    return [(n, c) for n, c in found if c["settings_key"] == key and c["seed"] in SEEDS]


def rows_of(experiment, table, **params):
    """seed -> rows of a table, of the cells with these parameters."""
    found = {}
    with zipfile.ZipFile(PUBLISHED / experiment / "cells.zip") as archive:
        for name, cell in cells(experiment):
            path = name.replace("cell.json", f"{table}.csv.gz")
            same = all(str(cell["params"].get(k)) == str(v) for k, v in params.items())
            if same and path in archive.NameToInfo:
                text = gzip.decompress(archive.read(path)).decode()
                found[cell["seed"]] = list(csv.DictReader(io.StringIO(text)))
    return found


def chosen(rows, **keys):
    wanted = {key: str(value) for key, value in keys.items()}
    return [row for row in rows if wanted.items() <= row.items()]


def gap(rows, checkpoint):
    kept = chosen(rows, checkpoint=checkpoint, images=0)
    return sum(float(r["tensor"]) for r in kept) / sum(float(r["gn"]) for r in kept)


def one(column, **keys):
    def value(rows):
        (row,) = chosen(rows, **keys)
        return float(row[column])

    return value


def comparisons():
    for activation in ("softplus", "silu", "gelu"):
        for at in ("init", "final"):
            keys = {"metric": "gap_global", "activation": activation, "checkpoint": at}
            yield (
                "exp3_gn_gap",
                "distances",
                {"activation": activation},
                keys,
                lambda r, at=at: gap(r, at),
            )
    for arch in ("resnet18", "plain_resnet18"):
        for d in (0, 4):
            cell = {"activation": "relu", "arch": arch, "checkpoint": "init"}
            of = one("R", distance=d, estimator="published", statistics="running")
            yield "exp6_resnet18", "distances", cell, cell | {"metric": "R", "distance": d}, of
    for d_u in (4, 256):
        for name in "DC":
            cell = {"depth": 6, "d_u": d_u}
            keys = cell | {"metric": f"{name}_far", "checkpoint": "final", "base_width": 512}
            column = "C_cut_estimate" if name == "C" else "D_estimate"
            yield "exp2_bottleneck", "far", cell | {"phase": "trained"}, keys, column
    for at in ("init", "mid", "final"):
        cell = {"network": "attention", "protocol": "recovered"}
        keys = cell | {"metric": "gap", "checkpoint": at}
        yield "exp5_attention", "blocks", cell, keys, one("gap", checkpoint=at, images=0)
    for arch, at in (("plain", "init"), ("plain", "final"), ("residual", "init")):
        cell = {"depth": 8, "arch": arch}
        keys = cell | {"metric": "rho_max", "checkpoint": at}
        yield "exp1_resonance", "networks", cell, keys, one("rho", checkpoint=at, images=0)


def far(column, checkpoint):
    def value(rows):
        (row,) = chosen(rows, checkpoint=checkpoint, images=0)
        return float(row.get(column) or row[column.replace("_cut", "")])

    return value


def scorecard(experiment, keys):
    with open(PUBLISHED / experiment / "scorecard.csv", newline="") as stream:
        (row,) = chosen(csv.DictReader(stream), **keys)
    return row


CASES = list(comparisons())


@pytest.mark.parametrize("case", CASES, ids=lambda c: " ".join(map(str, (c[0], *c[3].values()))))
def test_a_printed_comparison_computed_again(case):
    experiment, table, cell, keys, of = case
    if isinstance(of, str):
        of = far(of, keys["checkpoint"])
    values = {seed: of(rows) for seed, rows in rows_of(experiment, table, **cell).items()}
    assert set(values) == set(SEEDS)
    row, n = scorecard(experiment, keys), len(values)
    mean = math.fsum(values.values()) / n
    variance = math.fsum((v - mean) ** 2 for v in values.values()) / (n - 1)
    assert float(row["measured_mean"]) == pytest.approx(mean, rel=1e-7)
    assert float(row["measured_std"]) == pytest.approx(math.sqrt(variance), rel=1e-6)
    printed = float(row["paper_mean"])
    if row["verdict"] == "exact match":
        assert abs(mean - printed) <= float(row["resolution"]) * (1 + 1e-6)
    if row["rounding_std"] not in ("", "nan") or not row["equivalence"]:
        return
    known = [float(row[c]) for c in ("paper_std", "results_std") if row.get(c, "nan") != "nan"]
    std = known[0] if known else math.nan
    theirs = std**2 / (n - 1) if not math.isnan(std) else variance / n
    parts = [(variance / n, n - 1), (theirs, n - 1)]
    if math.isnan(std):
        parts = [(variance / n + theirs, n - 1)]
    if float(row["image_variance"]) > 0:
        parts.append((float(row["image_variance"]), float(row["image_df"])))
    square = sum(v for v, _ in parts)
    df = square**2 / sum(v**2 / d for v, d in parts if v > 0)
    half = float(t.ppf(0.95, df)) * math.sqrt(square)
    low, high = mean - printed - half, mean - printed + half
    assert (float(row["low"]), float(row["high"])) == pytest.approx((low, high), rel=1e-5)
    margin = float(row["margin"])
    inside, outside = -margin <= low and high <= margin, low > margin or high < -margin
    expected = "not reproduced" if outside else "inconclusive"
    if inside:
        expected = "reproduced"
    assert row["equivalence"] == expected


def test_there_are_twenty():
    assert len(CASES) == 20
