"""Examples in docstrings outside the engine run; the engine's have tests/curvature/test_doctests.py."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("runner", "experiments")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if ">>> " in path.read_text() and "curvature" not in path.parts
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name, published):
    failed, tried = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried and not failed
