"""The examples in the docstrings of the engine and of the closed forms run."""

import doctest
import importlib
import pkgutil

import pytest

from runner import closed_form, curvature

PACKAGES = (curvature, closed_form)
MODULES = [
    *(p.__name__ for p in PACKAGES),
    *(m.name for p in PACKAGES for m in pkgutil.walk_packages(p.__path__, f"{p.__name__}.")),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    failed, _ = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert failed == 0
