"""Paths and values as users write them: ~ is the home folder everywhere, a folder that is named is
there, letters beyond ASCII need no quotes."""

import shlex

import pytest

from runner import results
from runner.contract import SettingError, quoted, typed_path
from runner.run import config

READING = (
    ("list",),
    ("store", "check"),
    ("why", "toy"),
    ("open", "toy"),
)


@pytest.mark.parametrize("words", READING, ids=" ".join)
@pytest.mark.parametrize("place, found", [("nowhere", "found none"), ("file", "found the file")])
def test_a_folder_of_results_that_is_not_there_is_a_mistake(words, place, found, command):
    (command.folder / "file").touch()
    status, out, err = command(*words, f"outputs={place}")
    assert status == 2 and not out and found in err and err.count("\n") == 1
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
        status, out, err = command(*words)
        assert status == 0, err
    assert str(home / "data") in out
    assert len(results.load("toy", outputs="~/x").cells) == 2
    assert [path.name for path in command.folder.iterdir()] == [home.name]
    assert {path.name for path in home.iterdir()} == {"data", "x"}
    status, _, err = command("experiment=toy", "outputs=~nobody_of_this_name/x")
    assert status == 2 and err.startswith("hess-run: outputs: expected a home folder")


@pytest.mark.parametrize(
    "word, message",
    [
        ("experiment=t\u043ey", "experiment='t\\u043ey': no such choice (did you mean toy?)"),
        ("experiment=toy\u00a0", "experiment='toy\\xa0': no such choice (did you mean toy?)"),
        ("seed=\u201c42\u201d", "seed: expected a whole number, found"),
        ("scale=\uff11", "experiment.scale: expected a number, found"),
    ],
)
def test_letters_that_look_like_others_are_named(word, message, command):
    status, _, err = command("experiment=toy", "width=1", word)
    assert status == 2 and message in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "path", ["a", "a b", "jörg", "it's", "a,b=[c]", "a\\b", " x ", "~x", "{y}", "a\\'", "a\\"]
)
def test_any_path_is_a_word_of_the_grammar(path, toy_conf):
    words = config.arguments(["experiment=toy", quoted("outputs", f"./{path}")])
    assert config.build_jobs(words)[0].outputs == typed_path("outputs", f"./{path}")


@pytest.mark.parametrize("path", ["a, b", "{y}"])
def test_a_command_that_is_printed_names_any_path(path, command):
    status, out, _ = command("experiment=toy", "width=1", f"outputs='{path}'")
    printed = shlex.split(next(line for line in out.splitlines() if "to fill: " in line))
    words = printed[printed.index("hess-run") + 1 :]
    assert status == 0 and f"outputs='{path}'" in words
    assert command(*words)[0] == 0 and "to fill" not in command("report", *words)[1]
    assert f"outputs='{path}'" in command("plan", *words)[1]
