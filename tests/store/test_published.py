"""Published results are read from a clone or from their folder."""

import shutil

import pytest

from runner.contract import SettingError
from runner.store.archive import published_root, where_published
from tests import ROOT
from tests.errors import refusal

REPORT = ROOT / "outputs" / "published" / "exp3_stochastic"


def test_a_clone_is_found_by_its_top_folder(tmp_path, monkeypatch):
    shutil.copytree(REPORT, tmp_path / "clone" / "outputs" / "published" / "exp3_stochastic")
    for place in (tmp_path / "clone", tmp_path / "clone" / "outputs" / "published"):
        monkeypatch.setenv("HESS_PUBLISHED", str(place))
        assert published_root() == tmp_path / "clone" / "outputs" / "published"


def test_a_zip_file_has_to_be_unpacked(tmp_path, monkeypatch):
    (tmp_path / "a.zip").write_bytes(b"")
    monkeypatch.setenv("HESS_PUBLISHED", str(tmp_path / "a.zip"))
    with refusal("found a file; unpack it first: ", SettingError):
        published_root()


def test_the_message_says_where_published_results_are_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("HESS_PUBLISHED", str(tmp_path / "nothing"))
    with pytest.raises(SettingError, match=f"found none at {tmp_path / 'nothing'}"):
        published_root()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HESS_PUBLISHED", "~")
    assert published_root() == tmp_path
    monkeypatch.setenv("HESS_PUBLISHED", "")
    assert "set HESS_PUBLISHED to a clone" in where_published()
