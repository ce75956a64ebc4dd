"""Cases of a parametrized test that are left to the slow run."""

import pytest


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def daily(values, some):
    """Every value; all except some of them in the slow run alone."""
    return [value if value in some else slow(value) for value in values]
