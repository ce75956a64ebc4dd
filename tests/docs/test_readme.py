"""README: its Python runs, its commands are known, its links lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest

from docs.render import render
from runner import cli
from runner.run import config
from runner.run.command_line import VERBS, parse

ROOT = Path(__file__).resolve().parents[2]
REPORTS = sorted((ROOT / "docs" / "reproduction").glob("*.md"))
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.S)
COMMANDS = [
    line.partition("  #")[0].strip()
    for language, block in BLOCKS
    if language == ""
    for line in block.splitlines()
    if line.strip()
]


EXAMPLES = [block for language, block in BLOCKS if language == "python"]


def test_the_engine_example_prints_what_the_page_shows(capsys):
    (shown,) = [block for language, block in BLOCKS if language == "text"]
    exec(compile(EXAMPLES[0], "README.md", "exec"), {})
    assert capsys.readouterr().out == shown


def test_the_results_example_loads_a_table(published):
    names: dict[str, object] = {}
    exec(compile(EXAMPLES[1], "README.md", "exec"), names)
    assert {"seed", "activation", "checkpoint"} <= set(names["networks"].columns)


@pytest.mark.parametrize("page", ["README.md", *(f"docs/reproduction/{p.name}" for p in REPORTS)])
def test_marked_numbers_agree_with_the_published_results(page, published):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert render(text) == text, "run `make readme`"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command, capsys):
    program, *words = shlex.split(command)
    assert program in ("make", ".venv/bin/hess-run", "hess-run")
    if program == "make":
        assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.M)
    elif words[0] == "diagnose":
        assert (ROOT / words[1].removeprefix("target=").partition(":")[0]).is_file()
    elif words[0] in VERBS or words[0] == "--help":
        assert cli.dispatch([words[0], "--help"] if words[0] in VERBS else words) == 0
        if words[0] in ("plan", "show"):
            assert cli.dispatch(words) == 0
    else:
        assert config.build_jobs(parse(words).arguments())
