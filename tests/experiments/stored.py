"""Published cells and verdicts, read by code that imports nothing of the project."""

import gzip
import io
import json
import zipfile
from functools import cache
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "outputs" / "published"
SEEDS = (42, 43, 44, 45, 46)


@cache
def manifest(experiment):
    return json.loads((PUBLISHED / experiment / "manifest.json").read_text())


@cache
def cells(experiment, **model):
    """(name, content) of each cell.json of the paper's seeds with the settings of the report, or of
    the companion networks with these settings of the model."""
    key = manifest(experiment)["settings_key"]
    with zipfile.ZipFile(PUBLISHED / experiment / "cells.zip") as archive:
        names = [name for name in archive.namelist() if name.endswith("/cell.json")]
        found = [(name, json.loads(archive.read(name))) for name in names]
    if model:
        found = [(n, c) for n, c in found if model.items() <= c["settings"]["model"].items()]
    else:
        found = [(n, c) for n, c in found if c["settings_key"] == key]
    return [(n, c) for n, c in found if c["seed"] in SEEDS]


@cache
def table(experiment, name, **model):
    """A table of all of these cells, with their parameters."""
    parts = []
    words = {"kind": str, "nearest_kind": str, "led_kind": str}
    with zipfile.ZipFile(PUBLISHED / experiment / "cells.zip") as archive:
        for path, cell in cells(experiment, **model):
            file = path.replace("cell.json", f"{name}.csv.gz")
            if file in archive.NameToInfo:
                text = io.BytesIO(gzip.decompress(archive.read(file)))
                part = pd.read_csv(text, dtype=words)
                parts.append(part.assign(**{**cell["params"], "seed": cell["seed"]}))
    return pd.concat(parts, ignore_index=True)


def chosen(found, **keys):
    """The rows of a table with these values, of which there are some."""
    for column, value in keys.items():
        if isinstance(value, list | tuple):
            found = found[found[column].isin(value)]
        else:
            found = found[found[column] == value]
    assert len(found), keys
    return found


def rows(experiment, name, **keys):
    return chosen(table(experiment, name), **keys)


@cache
def verdicts(experiment, file="scorecard"):
    return pd.read_csv(PUBLISHED / experiment / f"{file}.csv")
