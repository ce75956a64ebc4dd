"""Commands in folders with other people's files: none of these is changed."""

import zipfile

import pytest

from runner.contract import SettingError
from runner.report.output.start import write_overview
from runner.report.update import draw
from runner.run.config.jobs import build_job, protocol
from runner.run.execute import run
from runner.run.publish import publish
from runner.run.reports import report_jobs
from runner.store.store import DIAGNOSIS, Store
from runner.store.upkeep import OWNER, make_ready
from tests.errors import refusal
from tests.run.conftest import TWO_CELLS
from tests.store.conftest import flipped

THEIRS = """
notes.txt thesis.zip mine.csv .hidden figures/mine.png figures/mine.pdf tables/mine.csv cells/README
checkpoints/best.pt failures/notes.json logs/mine.log .locks/a
"""


def put(folder, names=THEIRS):
    """Other people's files in a folder, with their contents."""
    contents = {folder / name: f"theirs: {name}".encode() for name in names.split()}
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return contents


@pytest.fixture
def outputs(layers):
    return layers[0]


def jobs(outputs, *words):
    return [build_job([*TWO_CELLS, *words, f"outputs={outputs}"])]


def test_runs_reports_and_publications_leave_other_files_alone(outputs, tmp_path, monkeypatch):
    theirs = {**put(outputs), **put(outputs / "toy"), **put(tmp_path / "published" / "toy")}
    for words in ((), ("force=true",), ("seed=43",)):
        assert not run(jobs(outputs, *words)[0]).failed
        assert report_jobs(jobs(outputs, *words), any_seed=True)
        publish("toy", [], outputs)
        assert theirs == {path: path.read_bytes() for path in theirs}


OURS = """
toy/numbers.csv toy/claims.csv toy/toy.md toy/report.md toy/index.html
toy/manifest.json toy/figures/numbers.png index.html
"""


def test_files_of_others_with_the_names_of_a_report_are_kept(outputs, monkeypatch, caplog):
    monkeypatch.setenv("TOY_FIGURES", "1")
    theirs = put(outputs, OURS)
    run(jobs(outputs)[0])
    assert report_jobs(jobs(outputs))
    for path, content in theirs.items():
        kept = path.with_name(f"{path.stem}.kept{path.suffix}")
        assert kept.read_bytes() == content and path.read_bytes() != content
        assert f"{path} is not as this program wrote it; kept as {kept.name}" in caplog.text


def retouched(content):
    """A word replaced, as in a page, a manifest or a drawing; else a bit."""
    if b"Toy" in content:
        return content.replace(b"Toy", b"My")
    return flipped(content)


EDITS = {
    "a remark": lambda content: content + b"\n<!-- hess-run window.hess: mine -->",
    "retouched": retouched,
    "rewritten": lambda content: b"mine, and no file of hess-run's",
    "cut": lambda content: content[: len(content) // 2],
}


@pytest.mark.parametrize("edit", EDITS)
def test_whatever_is_changed_in_a_report_is_kept_and_what_is_not_is_replaced(
    edit, outputs, monkeypatch, caplog
):
    """What somebody changes in a file is not lost, whatever the file is and whatever it says."""
    monkeypatch.setenv("TOY_FIGURES", "1")

    def update(*words):
        caplog.clear()
        run(jobs(outputs, *words)[0])
        report_jobs(jobs(outputs, *words), any_seed=True)
        draw(jobs(outputs), protocol, suffix="svg", any_seed=True)
        write_overview(outputs)
        found = [*outputs.glob("*.*"), *outputs.glob("toy/*.*"), *outputs.glob("toy/figures/*.*")]
        return {path for path in found if not path.name.startswith(".") and path.is_file()}

    files = update()
    assert {path.suffix for path in files} == {
        ".html",
        ".json",
        ".csv",
        ".md",
        ".png",
        ".svg",
    }
    assert (
        update("seed=43") >= files and "kept as" not in caplog.text
    )  # other contents, and no word
    edited = {path: EDITS[edit](path.read_bytes()) for path in files}
    for number in ("", "-1"):
        for path, content in edited.items():
            path.write_bytes(content)
        assert update() >= files
        for path, content in edited.items():
            kept = path.with_name(f"{path.stem}.kept{path.suffix}{number}")
            assert kept.read_bytes() == content and path.read_bytes() != content
            assert f"{path} is not as this program wrote it; kept as {kept.name}" in caplog.text
        assert caplog.text.count("kept as") == len(files)


def test_a_replaced_cell_with_files_of_others_is_kept(outputs):
    run(jobs(outputs)[0])
    store = Store(outputs, "toy")
    one, two = (store.working.path(name) for name in store.names())
    with zipfile.ZipFile(one, "a") as archive:
        archive.writestr("notes.txt", "mine")
    elsewhere = two.rename(outputs / "elsewhere.zip")
    two.symlink_to(elsewhere)
    before = [path.read_bytes() for path in (one, elsewhere)]
    assert all(store.has(name) for name in store.names())
    assert not run(jobs(outputs, "force=true")[0]).failed
    kept = [path.with_name(f"{path.name}.damaged") for path in (one, two)]
    assert [kept[0].read_bytes(), elsewhere.read_bytes()] == before
    assert kept[1].is_symlink() and kept[1].resolve() == elsewhere
    assert all(store.has(name) for name in store.names())


@pytest.mark.parametrize("mine", [False, True])
def test_a_figure_that_is_no_longer_made_goes_unless_it_was_changed(
    outputs, tmp_path, monkeypatch, mine
):
    monkeypatch.setenv("TOY_FIGURES", "1")
    run(jobs(outputs)[0])
    report_jobs(jobs(outputs))
    draw(jobs(outputs), protocol, suffix="pdf")
    write_overview(outputs)
    publish("toy", [], outputs)
    place = outputs / "toy" / "figures"
    published = tmp_path / "published" / "toy" / "figures" / "numbers.png"
    drawn = [place / "numbers.png", place / "numbers.pdf", published]
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
    """An experiment and a diagnosis of the same name."""
    run(jobs(outputs)[0])
    with refusal(r"^name: .*toy holds the cells of an experiment", SettingError):
        make_ready(Store(outputs, "toy", kind=DIAGNOSIS))
    (outputs / "toy" / OWNER).unlink()
    make_ready(Store(outputs, "toy", kind=DIAGNOSIS))
    with refusal(r"^outputs: .*toy holds a diagnosis", SettingError):
        run(jobs(outputs)[0])
