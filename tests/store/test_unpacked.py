"""Published results are read from a clone, from their folder, or from a zip file of either."""

import shutil
import zipfile

import pytest

from runner.contract import SettingError
from runner.report.page import Page
from runner.store.archive import published_root, report_folders, where_published
from tests import ROOT
from tests.errors import refusal

REPORT = ROOT / "outputs" / "published" / "hsr_stochastic"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "hess-run"


def packed(path, prefix, more=()):
    with zipfile.ZipFile(path, "w") as archive:
        for file in REPORT.rglob("*"):
            if file.is_file():
                archive.write(file, f"{prefix}hsr_stochastic/{file.relative_to(REPORT)}")
        for name in more:
            archive.writestr(name, "x")
    return path


@pytest.mark.parametrize("prefix", ["", "published/", "hess-run-main/outputs/published/"])
def test_a_zip_file_is_unpacked_once_into_the_cache(tmp_path, monkeypatch, cache, prefix):
    place = packed(tmp_path / "a.zip", prefix, (f"{prefix}not_run.md", "hess-run-main/README.md"))
    monkeypatch.setenv("HESS_PUBLISHED", str(place))
    root = published_root()
    assert root is not None and root.parent == cache
    for file in REPORT.rglob("*"):
        assert not file.is_file() or (root / "hsr_stochastic" / file.relative_to(REPORT)).is_file()
    assert (root / "not_run.md").is_file() and not (root / "README.md").exists()
    (folder,) = report_folders(tmp_path / "outputs")
    assert Page.read(folder) is not None
    (root / "hsr_stochastic" / "claims.csv").unlink()
    assert published_root() == root and list(cache.iterdir()) == [root]


def test_a_clone_is_found_by_its_top_folder(tmp_path, monkeypatch):
    shutil.copytree(REPORT, tmp_path / "clone" / "outputs" / "published" / "hsr_stochastic")
    for place in (tmp_path / "clone", tmp_path / "clone" / "outputs" / "published"):
        monkeypatch.setenv("HESS_PUBLISHED", str(place))
        assert published_root() == tmp_path / "clone" / "outputs" / "published"


def test_names_that_lead_out_are_not_unpacked(tmp_path, monkeypatch):
    odd = ("../evil", "a/../../evil", "hsr_stochastic/../../evil", "/evil", "hsr_stochastic/a/b/c")
    monkeypatch.setenv("HESS_PUBLISHED", str(packed(tmp_path / "a.zip", "", odd)))
    root = published_root()
    assert root is not None and {path.name for path in root.iterdir()} == {"hsr_stochastic"}
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("content", [b"", b"no zip file", None])
def test_another_file_is_one_line(tmp_path, monkeypatch, cache, content):
    place = tmp_path / "a.zip"
    if content is None:
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr("README.md", "no results")
    else:
        place.write_bytes(content)
    monkeypatch.setenv("HESS_PUBLISHED", str(place))
    with refusal("expected a zip file with published results", SettingError):
        published_root()
    assert not cache.exists()


def test_the_message_says_where_published_results_are_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("HESS_PUBLISHED", str(tmp_path / "nothing"))
    with pytest.raises(SettingError, match=f"found none at {tmp_path / 'nothing'}"):
        published_root()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HESS_PUBLISHED", "~")
    assert published_root() == tmp_path
    monkeypatch.setenv("HESS_PUBLISHED", "")
    assert "set HESS_PUBLISHED to a clone" in where_published()
