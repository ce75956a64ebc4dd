"""The examples in the docstrings of the engine run."""

import doctest
import importlib
import pkgutil

import pytest

import runner.curvature as curvature

MODULES = [
    "runner.curvature",
    *(m.name for m in pkgutil.walk_packages(curvature.__path__, "runner.curvature.")),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    failed, _ = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert failed == 0
