"""The fixtures of the runner's tests."""

from tests.run.conftest import command, measured, toy_conf  # noqa: F401
