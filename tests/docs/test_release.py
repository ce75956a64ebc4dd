"""What a release says in several files agrees: version, date, requirements."""

import re
import tomllib

from packaging.requirements import Requirement

import runner
from tests import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (ROOT / "requirements-cpu.lock").read_text(encoding="utf-8")
PINS = dict(re.findall(r"^([\w.-]+)==([\w.]+)", LOCK, re.M))


def test_the_version_and_its_date_are_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version, date = re.search(r"^## (\d\S*) \((.+)\)$", changes, re.M).groups()
    assert PROJECT["version"] == runner.__version__ == version
    assert f"version: {version}\ndate-released: {date}" in citation


def test_the_lock_file_has_every_requirement_and_names_no_index():
    for text in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]):
        requirement = Requirement(text)
        assert requirement.specifier.contains(PINS[requirement.name]), text
    assert "://" not in LOCK and "--" not in re.sub(r"^#.*$", "", LOCK, flags=re.M)


def test_the_container_takes_every_version_from_the_lock_file():
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
    installed = re.findall(r"pip install --no-cache-dir ([^&]+?)(?: &&|$)", "\n".join(lines), re.M)
    assert installed == ["--requirement requirements-cpu.lock", "--editable ."]
