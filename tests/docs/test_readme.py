"""README: it is short, its Python prints what it shows, and each of its commands runs in a fresh
clone."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from runner import cli
from runner.run.command_line import COMMANDS as KNOWN, parse
from runner.run.config.jobs import build_jobs
from tests import ROOT
from tests.run.test_clone import assert_unchanged, in_clone

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.S)
EXAMPLES = [block for language, block in BLOCKS if language == "python"]
SHELL = "\n".join(block for language, block in BLOCKS if not language)
COMMANDS = [line.partition("  #")[0].strip() for line in SHELL.splitlines() if line.strip()]
WORDS = 850


def test_the_readme_is_short_and_names_the_licence():
    assert len(README.split()) <= WORDS
    assert "(LICENSE)" in README and (ROOT / "LICENSE").read_text().startswith("MIT License")


def test_the_engine_example_prints_what_the_page_shows(capsys):
    (shown,) = [block for language, block in BLOCKS if language == "text"]
    exec(compile(EXAMPLES[0], "README.md", "exec"), {})
    assert capsys.readouterr().out == shown


def test_the_results_example_loads_a_table(published):
    names = {}
    exec(compile(EXAMPLES[1], "README.md", "exec"), names)
    keys, networks = ["activation", "seed", "checkpoint"], names["networks"]
    assert set(keys) <= set(networks.columns) and not networks.duplicated(keys).any()
    assert len(networks) == 5 * 5 * 3


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command, capsys):
    program, *words = shlex.split(command)
    assert program in ("make", ".venv/bin/hess-run")
    if program == "make":
        assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.M)
    elif words[0] == "diagnose":
        assert (ROOT / words[1].removeprefix("target=").partition(":")[0]).is_file()
    elif words[0] in KNOWN:
        assert cli.dispatch([words[0], "--help"]) == 0
    else:
        assert build_jobs(parse(words).arguments())


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_runs_in_a_fresh_clone(command, clone):
    program, *words = shlex.split(command)
    if program == "make":
        binaries = f"BIN={Path(sys.executable).parent}"
        dry = ["--dry-run"] if words == ["test"] else []  # it would run itself
        run = ["make", "--assume-old=.venv/.ready", binaries, *dry, *words]
    else:
        run = [sys.executable, "-m", "runner", *words]
    ended = in_clone(clone, *run)
    assert ended.returncode == 0, ended.stderr
    assert_unchanged(clone)


INSTRUCTIONS = (ROOT / "llms.txt").read_text(encoding="utf-8")


def test_the_instructions_for_agents_are_short_and_their_commands_are_understood(capsys):
    assert len(INSTRUCTIONS.splitlines()) < 60
    lines = [line.strip() for line in INSTRUCTIONS.splitlines() if line.startswith("    ")]
    commands = [line.partition("  #")[0] for line in lines if line.startswith("hess-run ")]
    for command in commands:
        _, *words = shlex.split(command)
        if words[0] in KNOWN:
            assert cli.dispatch([words[0], "--help"]) == 0
        else:
            assert build_jobs(parse(words).arguments())
    assert len(commands) > 10
    for path in re.findall(r"\b(?:docs/)?[\w-]+\.md\b", INSTRUCTIONS):
        assert path == "report.md" or (ROOT / path).is_file(), path
