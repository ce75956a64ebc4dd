"""Where the committed results come from: clean commits of this history, on a named machine."""

import json
import subprocess
import zipfile
from functools import cache
from pathlib import Path

import pytest

from tests import ROOT

FACTS = ("git_commit", "cpu", "instructions", "blas", "torch", "numpy", "python", "machine")


def git(*words):
    found = subprocess.run(
        ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False
    )
    return found.stdout if found.returncode == 0 else ""


@cache
def committed():
    """cell.json of every published cell that git holds, by experiment and id."""
    paths = git("ls-files", "outputs/published/*/cells.zip").split()
    if not paths:
        pytest.skip("no git history here: an unpacked archive holds no commits")
    found = {}
    for path in paths:
        with zipfile.ZipFile(ROOT / path) as archive:
            for name in (name for name in archive.namelist() if name.endswith("/cell.json")):
                found[f"{Path(path).parent.name}/{name}"] = json.loads(archive.read(name))
    return found


def test_every_cell_names_commit_processor_instructions_and_blas():
    lacking = []
    for path, cell in committed().items():
        software = cell["software"]
        lacking += [(path, fact) for fact in FACTS if not str(software.get(fact) or "").strip()]
    assert len(committed()) > 500 and not lacking


def test_every_cell_comes_from_a_clean_commit_of_this_history():
    commits = {str(cell["software"]["git_commit"]) for cell in committed().values()}
    assert not [c for c in commits if "+" in c or len(c) < 12], "measured from a changed tree"
    if git("rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("a shallow clone: its history ends before the cells' commits")
    history = {line[:12] for line in git("rev-list", "HEAD").split()}
    assert not [c for c in commits if c[:12] not in history], (
        "measured at a commit that is not in this history"
    )


def test_a_cell_lies_where_its_id_says():
    for path, cell in committed().items():
        name = Path(path)
        assert (name.parts[0], name.parts[1]) == (cell["experiment"], cell["id"]), path
