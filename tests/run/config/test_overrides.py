"""Overrides in Hydra's grammar."""

from __future__ import annotations

import pytest

from runner.contract import SettingError
from runner.run import command
from runner.run.config import overrides


@pytest.mark.parametrize(
    ("text", "key", "sweep", "size"),
    [
        ("a.b=3", "a.b", False, 1),
        ("++a=[1,2]", "a", False, 1),
        ("a=1,2,3", "a", True, 3),
        ("a=range(0,10,3)", "a", True, 4),
        ("a=range(0,1000000000)", "a", True, 10**9),
        ("a=choice(x,y)", "a", True, 2),
        ("experiment=glob(ws_*)", "experiment", True, 1),
    ],
)
def test_overrides_are_read_one_by_one(text, key, sweep, size):
    word = overrides.read(text)
    assert (word.key, word.sweep, word.size) == (key, sweep, size)
    if size < 100:
        assert len(word.values()) == size


@pytest.mark.parametrize("text", ["a=b=c", "a=[", "a=1,", "a=interval(0,1)", "a=" + "{" * 500])
def test_what_the_grammar_refuses_is_one_line_with_the_key(text):
    with pytest.raises(SettingError) as error:
        overrides.read(text)
    line = str(error.value)
    assert "\n" not in line and len(line) < 300 and line.startswith(text.partition("=")[0])
    assert "<EOF>" not in line and "See https" not in line


def test_a_launcher_that_is_not_installed_names_the_extra():
    assert "pip install 'hess-run[ray]'" in command.missing_launcher("ray")
    assert "pip install 'hess-run[slurm]'" in command.missing_launcher("submitit_slurm")
    assert "no such launcher" in command.missing_launcher("nope")
