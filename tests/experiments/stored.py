"""Published cells and verdicts, read by code that imports nothing of the project."""

import gzip
import io
import json
import zipfile
from collections import defaultdict
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
    texts, counts, params = defaultdict(list), defaultdict(list), defaultdict(list)
    with zipfile.ZipFile(PUBLISHED / experiment / "cells.zip") as archive:
        for path, cell in cells(experiment, **model):
            file = path.replace("cell.json", f"{name}.csv.gz")
            if file in archive.NameToInfo:
                text = gzip.decompress(archive.read(file)).decode()
                header, _, body = text.partition("\n")
                texts[header].append(body)
                counts[header].append(body.count("\n"))
                params[header].append({**cell["params"], "seed": cell["seed"]})
    words = {"kind": str, "nearest_kind": str, "led_kind": str}
    parts = []
    for header, bodies in texts.items():  # parsing each cell of its own takes most of the time
        part = pd.read_csv(io.StringIO("\n".join([header, "".join(bodies)])), dtype=words)
        of_cells = pd.DataFrame(params[header])
        keys = of_cells.loc[of_cells.index.repeat(counts[header])].reset_index(drop=True)
        assert len(part) == len(keys)
        own = part[[column for column in part if column not in keys]]
        parts.append(pd.concat([own, keys], axis=1))
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
