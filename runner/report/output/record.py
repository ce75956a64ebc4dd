"""What a report was made from, for its manifest."""

from __future__ import annotations

from typing import Any

from runner.contract import figure_settings
from runner.contract.records import CERTIFICATE
from runner.contract.schema import identifying
from runner.report.answers.judged import Judged
from runner.store.cells import Stored

CELL_KEYS = ("wall_seconds", "cpu_seconds", "peak_memory_mib", "finished")
"""Keys of cell.json in the manifest of a report."""


def _cell_record(cell: Stored) -> dict[str, Any]:
    return {
        "id": cell.id,
        "params": cell.meta["params"],
        "seed": cell.meta["seed"],
        **{key: cell.meta[key] for key in CELL_KEYS},
        "git_commit": cell.meta["software"]["git_commit"],
        "certificate": CERTIFICATE in cell.meta["tables"],
    }


def record_of(judged: Judged) -> dict[str, Any]:
    """What a report was made from."""
    collection = judged.collection
    job = collection.job
    cells = collection.cells
    experiment = job.experiment
    beside = {}
    for name, of_companion in collection.beside.items():
        beside[name] = [cell.id for cell in of_companion]
    options = {"options": list(job.options)} if job.options else {}
    return {
        **options,
        "experiment": job.name,
        "title": experiment.title,
        "paper": experiment.paper,
        "version": experiment.version,
        "profile": collection.place.profile,
        "changed": " ".join(collection.place.changed),
        "scope": judged.scope.record(),
        "settings": identifying(experiment),
        "settings_key": job.identity.key,
        "drawn_with": figure_settings(experiment),
        "threads": job.threads,
        "device": job.device,
        "seeds": list(collection.seeds),
        "cells": [_cell_record(cell) for cell in cells],
        "beside": beside,
        "missing": [str(cell) for cell in collection.missing],
        "failures": [
            {"seed": cell.seed, "cell": cell.label, "error": cell.error}
            for cell in collection.failures
        ],
        "fill_commands": collection.fill_commands,
        "wall_seconds": round(sum(cell.meta["wall_seconds"] for cell in cells), 2),
    }
