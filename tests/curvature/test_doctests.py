"""The examples in the docstrings of the engine run, and the functions that users start with have one."""

import doctest
import importlib
import pkgutil

import pytest

import runner.curvature as curvature

MODULES = ["runner.curvature", *(m.name for m in pkgutil.walk_packages(curvature.__path__, "runner.curvature."))]

WITH_EXAMPLES = (
    "CurvatureOperator",
    "Dag",
    "couplings",
    "exact_blocks",
    "frobenius_norms",
    "gauss_newton_blocks",
    "gn_gaps",
    "lanczos_extremes",
    "spectral_norms",
    "split_blocks",
    "stable_ranks",
    "verify",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_there_is_an_example(name):
    assert ">>>" in getattr(curvature, name).__doc__


def test_the_overview_names_what_is_public():
    overview = curvature.__doc__ or ""
    missing = [name for name in WITH_EXAMPLES if name not in overview]
    assert not missing
    assert all(getattr(curvature, name).__doc__ for name in curvature.__all__)
