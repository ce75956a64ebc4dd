"""Every column of every published table is described, and nothing else."""

import csv
import gzip
import json
import zipfile
from dataclasses import fields

import pytest

from docs.columns import PAGE, REPORTS, TITLES, described, page, place_of
from runner.report.answers.rows import SCORE_COLUMNS
from runner.run.config.experiment import preview
from runner.run.config.files import experiment_names
from tests import PUBLISHED

KEYS = "scorecard"
"""Section of columns.toml for keys of printed values that no measured table has."""


def folder_of(experiment):
    return type(preview(experiment)).__module__.split(".")[1]


def measured_columns(experiment):
    """(table, column) of every table that is published: parameters of the cell, and what its files
    have."""
    found = set()
    with zipfile.ZipFile(PUBLISHED / experiment / "cells.zip") as archive:
        for name in archive.namelist():
            cell, _, file = name.partition("/")
            if not file.endswith(".csv.gz"):
                continue
            with gzip.open(archive.open(name), "rt", encoding="utf-8") as stream:
                columns = next(csv.reader(stream))
            params = json.loads(archive.read(f"{cell}/cell.json"))["params"]
            table = file.removesuffix(".csv.gz")
            found |= {(table, column) for column in (*params, "seed", *columns)}
    return found


def test_the_page_is_made_from_the_code():
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("name", REPORTS)
def test_columns_of_reports_have_a_meaning(name):
    meanings = {field.name: field.metadata.get("help") for field in fields(REPORTS[name])}
    assert all(meanings.values()), "a field is made with `column(...)`"
    for path in PUBLISHED.glob(f"*/{name}.csv"):
        with path.open(newline="", encoding="utf-8") as stream:
            header = next(csv.reader(stream))
        keys = {column for column in header if name == "scorecard" and column not in SCORE_COLUMNS}
        assert set(header) - keys == set(meanings), path
        folder = folder_of(path.parent.name)
        assert not [key for key in keys if place_of(folder, KEYS, key) is None], path


def test_every_measured_column_is_described_and_no_entry_is_unused():
    used, missing = set(), []
    for experiment in experiment_names():
        folder = folder_of(experiment)
        for table, column in sorted(measured_columns(experiment)):
            place = place_of(folder, table, column)
            used.add(place)
            if place is None:
                missing.append(f"{experiment}, {table}: {column}")
        for path in (PUBLISHED / experiment).glob("scorecard.csv"):
            with path.open(newline="", encoding="utf-8") as stream:
                header = next(csv.reader(stream))
            used |= {place_of(folder, KEYS, column) for column in {*header} - SCORE_COLUMNS}
    entries = set()
    for folder in TITLES:
        everywhere, tables = described(folder)
        entries |= {(folder, "", column) for column in everywhere}
        entries |= {(folder, table, c) for table, columns in tables.items() for c in columns}
    assert not missing
    assert entries == used - {None}
