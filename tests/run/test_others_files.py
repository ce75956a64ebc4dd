"""Commands in folders with other people's files: none of these is changed."""

import json
import shutil
from pathlib import Path

import pytest

from runner.contract import SettingError
from runner.report.update import draw
from runner.report.write import write_overview
from runner.run import config
from runner.run.checks import check_store
from runner.run.execute import run
from runner.run.publish import publish
from runner.run.reports import report_jobs
from runner.store.job import claim_outputs
from runner.store.store import DIAGNOSIS, OWNER, Store
from tests.run.test_publish import TOY, committed

THEIRS = (
    *(
        "notes.txt",
        "thesis.zip",
        "mine.csv",
        ".hidden",
        "figures/mine.png",
        "figures/mine.pdf",
        "tables/mine.csv",
    ),
    *(
        "cells/README",
        "checkpoints/best.pt",
        "failures/notes.json",
        "quarantine/notes.txt",
        "logs/mine.log",
        ".locks/a",
    ),
)


def put(folder: Path) -> dict[Path, bytes]:
    """Other people's files in a folder, with their contents."""
    contents = {folder / name: f"theirs: {name}".encode() for name in THEIRS}
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return contents


def changed(contents: dict[Path, bytes]) -> list[Path]:
    return [
        path
        for path, content in contents.items()
        if not path.is_file() or path.read_bytes() != content
    ]


@pytest.fixture
def outputs(toy_conf, tmp_path, monkeypatch):
    monkeypatch.setenv("HESS_PUBLISHED", str(tmp_path / "published"))
    (tmp_path / "published").mkdir()
    committed(monkeypatch, "0123456789ab")
    claim_outputs(tmp_path / "outputs")
    return tmp_path / "outputs"


def jobs(outputs: Path, *words: str):
    return [config.build_job([*TOY, *words, f"outputs={outputs}"])]


def test_runs_reports_and_publications_leave_other_files_alone(outputs, tmp_path, monkeypatch):
    theirs = {**put(outputs), **put(outputs / "toy"), **put(tmp_path / "published" / "toy")}
    (
        outputs / "toy" / "cells" / "README"
    ).unlink()  # in cells/ it would be a damaged cell: moved to quarantine/
    theirs.pop(outputs / "toy" / "cells" / "README")
    for words in ((), ("force=true",), ("seed=43",)):
        assert not run(jobs(outputs, *words)[0]).failed
        assert report_jobs(jobs(outputs, *words), any_seed=True)
        publish("toy", [], outputs)
        assert changed(theirs) == []


def test_a_replaced_cell_with_files_of_others_is_kept_in_quarantine(outputs, caplog):
    run(jobs(outputs)[0])
    store = Store(outputs, "toy")
    names = store.names()
    (store.cells / names[0] / "notes.txt").write_text("mine")
    (store.cells / names[0] / "mine.csv.gz").write_text("mine")
    elsewhere = outputs / "elsewhere"
    (store.cells / names[1]).rename(elsewhere)
    (store.cells / names[1]).symlink_to(elsewhere)
    before = {path.name: path.read_bytes() for path in elsewhere.iterdir()}
    assert not run(jobs(outputs, "force=true")[0]).failed
    assert {path.name: path.read_bytes() for path in elsewhere.iterdir()} == before
    kept = [p for p in (store.root / "quarantine").iterdir() if p.suffix != ".txt"]
    assert sorted(p.name for p in kept if not p.is_symlink() for p in p.iterdir()) == [
        "mine.csv.gz",
        "notes.txt",
    ]
    assert [p.resolve() for p in kept if p.is_symlink()] == [elsewhere]
    assert all(store.has(name) for name in names) and not store.unfinished()
    assert caplog.text.count("moved to") == 2


def test_a_file_in_place_of_a_checkpoint_is_kept(outputs):
    checkpoints = Store(outputs, "toy").checkpoints({"width": 1})
    checkpoints.folder.mkdir(parents=True)
    (checkpoints.folder / "last.pt").write_bytes(b"theirs")
    checkpoints.save("last", {"epoch": 1})
    assert checkpoints.load("last") == {"epoch": 1}
    assert (checkpoints.folder / "last.damaged").read_bytes() == b"theirs"


@pytest.mark.parametrize("mine", [False, True])
def test_a_figure_that_is_no_longer_made_goes_unless_it_was_changed(
    outputs, tmp_path, monkeypatch, mine
):
    monkeypatch.setenv("TOY_FIGURES", "1")
    run(jobs(outputs)[0])
    report_jobs(jobs(outputs))
    draw(jobs(outputs), config.protocol, suffix="pdf")
    write_overview(outputs)
    publish("toy", [], outputs)
    places = [outputs / "toy" / "figures", tmp_path / "published" / "toy" / "figures"]
    drawn = [
        place / name
        for place, name in (
            (places[0], "numbers.png"),
            (places[0], "numbers.pdf"),
            (places[1], "numbers.png"),
        )
    ]
    assert all(path.is_file() for path in drawn)
    if mine:
        for path in drawn:
            path.write_bytes(b"mine")
    monkeypatch.delenv("TOY_FIGURES")
    run(jobs(outputs, "seed=43")[0])
    report_jobs(jobs(outputs), any_seed=True)
    publish("toy", [], outputs)
    assert [path.is_file() for path in drawn] == [mine] * 3


def test_a_folder_has_one_owner(outputs):
    """An experiment and a diagnosis of the same name, also where the folder does not say yet whose
    it is."""
    run(jobs(outputs)[0])
    theirs = Store(outputs, "toy", kind=DIAGNOSIS)
    for known in (True, False):
        if not known:
            (outputs / "toy" / OWNER).unlink()
        with pytest.raises(SettingError, match=r"^name: .*toy holds the cells of an experiment"):
            theirs.prepare()
    for cell in (outputs / "toy" / "cells").iterdir():
        shutil.rmtree(cell)
    report = {"experiment": "toy", "settings": {"content": "x"}}
    (outputs / "toy" / "manifest.json").write_text(json.dumps(report))
    theirs.prepare()
    with pytest.raises(SettingError, match=r"^outputs: .*toy holds a diagnosis"):
        run(jobs(outputs)[0])


def test_what_a_killed_or_refused_write_left_is_named_by_the_check(outputs, capsys):
    run(jobs(outputs)[0])
    store = Store(outputs, "toy")
    left = store.cells / f".tmp-{store.names()[0]}-999999-old"
    left.mkdir()
    (store.cells / ".tmp-mine").mkdir()
    assert check_store(outputs) == 0
    said = capsys.readouterr().out
    assert f"{left}: left of a write that was killed" in said and "tmp-mine" not in said
    run(jobs(outputs, "seed=43")[0])
    check_store(outputs)
    assert "left of a write" not in capsys.readouterr().out or left.exists()
    assert (store.cells / ".tmp-mine").is_dir()
