"""Paths and values as users write them: ~ is the home folder everywhere, a folder that is named is
there, letters beyond ASCII need no quotes."""

import shlex

import pytest

from runner import results
from runner.contract import SettingError, quoted, typed_path
from runner.run.command_line import parse
from runner.run.config.jobs import build_jobs
from runner.run.config.overrides import arguments

READING = (
    ("list",),
    ("store", "check"),
    ("why", "toy"),
)


@pytest.mark.parametrize("words", READING, ids=" ".join)
@pytest.mark.parametrize("place, found", [("nowhere", "found none"), ("file", "found the file")])
def test_a_folder_of_results_that_is_not_there_is_a_mistake(words, place, found, command):
    (command.folder / "file").touch()
    assert found in command.refusal(*words, f"outputs={place}")
    with pytest.raises(SettingError, match=found):
        results.load("toy", outputs=place)
    assert [path.name for path in command.folder.iterdir()] == ["file"]


def test_a_tilde_is_the_home_folder_in_every_path(command, monkeypatch):
    home = command.folder / "jörg, söhne"
    (home / "data").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HESS_DATA", "~/data")
    for words in (
        ("experiment=toy", "width=1", "outputs=~/x"),
        ("list", "toy", "outputs=~/x"),
        ("data", "list", "cifar10"),
    ):
        out = command.output(*words)
    assert str(home / "data") in out
    assert len(results.load("toy", outputs="~/x").cells) == 2
    assert [path.name for path in command.folder.iterdir()] == [home.name]
    assert {path.name for path in home.iterdir()} == {"data", "x"}


@pytest.mark.parametrize(
    "path", ["a", "a b", "jörg", "it's", "a,b=[c]", "a\\b", " x ", "~x", "{y}", "a\\'", "a\\"]
)
def test_any_path_is_a_word_of_the_grammar(path, toy_conf):
    words = arguments(["experiment=toy", quoted("outputs", f"./{path}")])
    assert build_jobs(words)[0].outputs == typed_path("outputs", f"./{path}")
    assert parse(["list", quoted("outputs", path)]).keys.outputs == path


@pytest.mark.parametrize("path", ["a, b", "{y}"])
def test_a_command_that_is_printed_names_any_path(path, command):
    out = command.output("experiment=toy", "width=1", f"outputs='{path}'")
    printed = shlex.split(next(line for line in out.splitlines() if "to fill: " in line))
    words = printed[printed.index("hess-run") + 1 :]
    assert f"outputs='{path}'" in words
    command.output(*words)
    assert "to fill" not in command("report", *words)[1]
    assert f"outputs='{path}'" in command("list", *words)[1]
    assert "6 cells are whole" in command.output("store", "check", f"outputs='{path}'")
