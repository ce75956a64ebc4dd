"""The command line as a user meets it: mistakes, reports that follow the store, output for programs
and people."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from runner.report.collect import collect
from runner.report.output.draw import DPI
from runner.run.config import compose
from runner.run.config.jobs import build_job, build_jobs, protocol
from runner.run.config.overrides import arguments
from runner.run.forecast import planned
from runner.store import tables
from runner.store.cells import SUM, sum_of, sums_of
from runner.store.store import Store
from tests.run.conftest import cell_tables, forget, opened
from tests.run.toy import ToyAnalysis


@pytest.mark.parametrize(
    "right, wrong, expected",
    [
        ("samples: 20", "sampels: 3", "did you mean experiment.samples?"),
        ("samples: 20", "samples: lots", "expected a whole number"),
        ("profiles:", "trianing: 3\nprofiles:", "did you mean training?"),
        ("train: 8", "trian: 3", "did you mean dataset.train?"),
    ],
)
def test_a_mistake_inside_an_experiment_file_is_named(right, wrong, expected, toy_conf, command):
    path = toy_conf / "experiment" / "toy.yaml"
    path.write_text(path.read_text().replace(right, wrong))
    assert expected in command.refusal("experiment=toy")
    assert not list(command.folder.iterdir())


def test_run_multirun_report_and_list(command):
    assert "6 measured" in command.output("experiment=toy")
    root = Path("outputs/toy")
    numbers = root / "numbers.csv"
    stored = numbers.read_bytes()
    assert len(pd.read_csv(numbers)) == 6 * 20
    assert "0 measured, 6 were stored" in command.output("experiment=toy")
    others = ("profile=quick", "quick", 2 * 5), ("scale=3.0", "paper-*", 6 * 20)
    for other, name, rows in others:  # into folders of their own
        command.output("experiment=toy", other)
        assert numbers.read_bytes() == stored
        (folder,) = root.glob(name)
        assert len(pd.read_csv(folder / "numbers.csv")) == rows
    command.output("-m", "experiment=toy", "seed=43,44", "width=3,1,2", "shape=square,round")
    table = pd.read_csv(numbers)
    assert set(table["seed"]) == {42, 43, 44} and len(table) == 3 * 6 * 20
    manifest = tables.read_json(root / "manifest.json")
    assert manifest["seeds"] == [42, 43, 44] and manifest["missing"] == []
    assert pd.read_csv(root / "claims.csv")["verdict"].tolist() == ["confirmed"]
    assert (root / "toy.md").read_text() == "# Toy\n\n360 numbers\n"
    assert "toy.md" in manifest["files"]
    assert "18 (seeds 42–44)" in command.output("list")
    assert "6 stored, 0 to run" in command.output("list", "toy")
    stored = numbers.read_bytes()
    command.output("report", "experiment=toy")
    assert numbers.read_bytes() == stored
    command.output("-m", "experiment=toy", "seed=42", "width=3,1,2", "outputs=swept")
    swept, whole = cell_tables(Path("swept")), cell_tables(Path("outputs"))
    assert len(swept) == 12 and swept.items() <= whole.items()


def test_help_and_listing_do_not_load_torch():
    """Of the project's own experiments, whose settings and cells a listing reads."""
    for verb in ("--help", "list"):
        code = (
            "import sys; from runner import cli\n"
            f"try: cli.main([{verb!r}])\nexcept SystemExit as e: assert not e.code\n"
            "heavy = {'torch', 'pandas', 'scipy', 'matplotlib'} & set(sys.modules)\n"
            "assert not heavy, heavy"
        )
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_failing_cells_on_and_off_the_grid_say_why_and_how_to_fill_them(command, monkeypatch):
    command("experiment=toy", "width=1")
    status, _, err = command("experiment=toy", "width=-7", "shape=round")
    assert status == 1
    assert "failed: seed=42 width=-7 shape=round: RuntimeError: widths have no sign" in err
    page = Path("outputs/toy/manifest.json")
    manifest = tables.read_json(page)
    (failure,) = manifest["failures"]
    assert failure["cell"] == "width=-7 shape=round" and "no sign" in failure["error"]
    assert len(manifest["missing"]) == 5
    grid, own = manifest["fill_commands"]
    assert grid == "hess-run experiment=toy seed=42"
    assert own == "hess-run experiment=toy experiment.width=-7 experiment.shape=round seed=42"
    monkeypatch.setenv("TOY_MENDED", "1")
    command.output(*own.split()[1:])
    manifest = tables.read_json(page)
    assert manifest["failures"] == [] and manifest["fill_commands"] == [grid]
    assert len(pd.read_csv(page.with_name("numbers.csv"))) == 3 * 20
    command.output(*grid.split()[1:])
    assert tables.read_json(page)["missing"] == []


def test_a_sweep_off_the_grid_names_each_way_to_ask(toy_conf, tmp_path):
    words = ["experiment=toy", f"outputs={tmp_path / 'o'}", "experiment.shape=round"]
    jobs = [
        build_job([*words, f"experiment.width={width}", f"seed={seed}"])
        for width in (-1, 7)
        for seed in (42, 43)
    ]
    jobs[0].store.failures.mkdir(parents=True)
    ((cell_id, _),) = jobs[0].cells()
    jobs[0].store.record_failure(cell_id, {"error": "ValueError: no sign"})
    found = collect(jobs, protocol)
    (cell,) = found.failures
    assert (str(cell), cell.error) == ("seed=42 width=-1 shape=round", "ValueError: no sign")
    command = f"hess-run -m experiment=toy outputs={tmp_path / 'o'}"
    assert found.fill_commands == [
        f"{command} seed=42,43",
        f"{command} experiment.shape=round experiment.width=-1 seed=42,43",
        f"{command} experiment.shape=round experiment.width=7 seed=42,43",
    ]
    assert len(found.missing) == 2 * 6 + 4


@pytest.fixture
def stored(command, measured, monkeypatch):
    """Run a command in a folder with the stored cells of seed 42: (status, output, errors)."""
    monkeypatch.setenv("HESS_QUIET", "0")
    monkeypatch.delenv("HESS_DATA", raising=False)
    shutil.copytree(measured, "outputs")
    return command


def test_one_data_set_that_is_not_there_keeps_no_other_experiment_from_measuring(
    stored, monkeypatch
):
    lacks = lambda made: "wide: get it" if any(2 in e.width for e in made) else ""  # noqa: E731
    monkeypatch.setattr("runner.run.command.missing_data", lacks)
    status, out, error = stored("-m", "experiment=toy", "width=1,2", "shape=round", "seed=44")
    assert status == 1 and "1 measured, 0 were stored" in out
    assert "some cannot be measured: wide: get it" in error
    one = ("experiment=toy", "width=2", "shape=round", "seed=45")
    assert stored.refusal(*one) == "hess-run: wide: get it\n"
    monkeypatch.setattr("runner.run.command.missing_data", lambda made: "get it")
    status, out, error = stored("experiment=toy", "width=[1,5]")  # of width 5 no cell is stored
    assert status == 1 and "report in" in out and "get it" in error


def test_what_is_stored_has_json_and_its_page_is_named(stored):
    def record(*words):
        return json.loads(stored.output(*words, "--json"))

    stored.output("report", "experiment=toy")
    (toy,) = record("list")
    found = [toy[key] for key in ("experiment", "cells", "stored", "seeds")]
    assert found == ["toy", 6, 6, [42]]
    cells = stored.output("list", "-m", "toy", "width=1,2", "seed=42,43")
    assert (cells.count("  stored "), cells.count("  to run ")) == (4, 4)
    assert "list, why have" in stored.refusal("store", "check", "--json")
    (answer,) = record("why", "outputs/toy/numbers.csv:2")
    assert answer["cells"][0]["seed"] == 42 and answer["settings"]["profile"] == "paper"
    assert "figure: expected one of" in stored.refusal("report", "experiment=toy", "figure=none")
    page = Path("outputs/toy/index.html").absolute()
    page.unlink()  # made again from the cells
    assert f"page {page.relative_to(Path.cwd())}\n" in stored.output("report", "experiment=toy")
    assert page.is_file()
    stored.output("experiment=toy", "width=1", "seed=45", "outputs=another_seed")
    (log,) = Path("another_seed/toy/logs").glob("*.log")
    assert re.search(r"cell \w+ width=1 shape=square\n", log.read_text())
    words = ("report", "experiment=toy", "width=1", "outputs=another_seed")
    assert "seed=42" not in stored(*words)[1]
    assert "seed=42,45" in stored(*words, "seed=42")[1]
    assert "outputs/NAME/index.html" in stored.refusal("open", "toy")


def test_a_listing_reads_manifests_and_composes_what_has_changed(stored, toy_conf, monkeypatch):
    stored.output("report", "experiment=toy")
    stored.output("experiment=toy", "samples=5", "width=[1]", "seed=50")  # other settings
    stored.output("experiment=toy", "width=[1]", "shape=[round]", "seed=43")
    asked = []
    whole = compose.with_hydra
    monkeypatch.setattr(compose, "with_hydra", lambda words: asked.append(words) or whole(words))
    forget()
    assert "6             7 (seeds 42, 43)" in stored.output("list") and not asked
    path = toy_conf / "experiment" / "toy.yaml"
    path.write_text(path.read_text().replace("width: [1, 2, 3]", "width: [1, 2]"))
    forget()
    assert stored.output("list").splitlines()[1].split()[2] == "4" and asked


@pytest.mark.parametrize(("figure", "status"), [("", 0), ("figure=numbers", 2)])
def test_a_report_of_nothing_says_so_and_leaves_an_empty_folder_empty(command, figure, status):
    Path("mine").mkdir()
    words = ["report", "experiment=toy", "width=3", "outputs=mine", *([figure] if figure else [])]
    code, out, error = command(*words)
    assert code == status and "no stored cells for these settings; to fill: hess-run" in out + error
    assert not any(Path("mine").iterdir())


def test_a_listing_sums_time_memory_and_disk_of_an_experiment(stored):
    cells = [path for path in Path("outputs/toy/cells").rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in cells)
    jobs = build_jobs(arguments(["experiment=toy"]))
    assert sum(cell.cost.bytes for cell in planned(jobs)) == size
    lines = stored.output("list", "toy").splitlines()
    assert lines[-2] == "6 cells: 6 stored, 0 to run; nothing to do"
    assert lines[-1].startswith("all 6 again: about") and "MB on disk" in lines[-1]
    left = stored.output("list", "-m", "toy", "seed=42,43").splitlines()[-2]
    assert left.startswith("12 cells: 6 stored, 6 to run; about ") and " of one core" in left


def test_the_command_of_a_published_row_names_no_published_folder(stored, published):
    last = stored.output("why", "dag.T5.gelu.final.gap_global").splitlines()[-1]
    assert "hess-run -m experiment=exp3_gn_gap activation=gelu seed=42,43,44,45,46" in last


def test_a_figure_in_another_size_is_a_file_of_its_own(stored, monkeypatch):
    monkeypatch.setenv("TOY_FIGURES", "1")
    report = Path("outputs/toy")
    stored("report", "experiment=toy")
    before = {path: path.read_bytes() for path in report.iterdir() if path.is_file()}
    figure = next(report.glob("figures/*.png"))
    words = ("report", "experiment=toy", f"figure={figure.stem}")
    out = stored.output(*words, "figure_width=5.5", "figure_height=4", "figures=pdf")
    drawn = figure.with_name(f"{figure.stem}_5.5x4in.pdf")
    assert drawn.is_file() and str(drawn) in out
    stored.output(*words, "figure_width=2.5")
    narrow = Image.open(figure.with_name(f"{figure.stem}_2.5in.png"))
    assert Image.open(figure).width < 2 * DPI and 2.2 * DPI < narrow.width < 2.6 * DPI
    assert before == {path: path.read_bytes() for path in before}


def test_verify_counts_cells_that_agree_and_that_differ(stored):
    words = ("verify", "experiment=toy", "width=[1]", "sample=0")
    assert stored(*words)[1].count(": identical\n") == 2
    one = (*words, "shape=[round]")
    assert "1 of 1 stored cells measured again: 1 agree" in stored.output(*one)
    store = Store(Path("outputs"), "toy")
    (path,) = (
        store.working.path(cell.id)
        for cell in store.all()
        if cell.meta["params"] == {"width": 1, "shape": "round"}
    )

    def described(folder, **about):
        meta = tables.read_json(folder / "cell.json")
        meta["software"] |= about
        files = {name: (folder / f"{name}.csv.gz").read_bytes() for name in meta["tables"]}
        meta[SUM] = sum_of(meta, sums_of(files))
        (folder / "cell.json").write_text(json.dumps(meta))

    with opened(path) as folder:
        table = tables.read(folder / "numbers.csv.gz")
        changed = table.assign(value=table["value"].where(table.index != 3, 0.5))
        (folder / "numbers.csv.gz").write_bytes(tables.compressed(tables.to_bytes(changed)))
        described(folder)
    status, out, _ = stored(*one)
    assert status == 1
    assert "toy seed=42 width=1 shape=round: differs: numbers.value row 3: 0.5 stored" in out
    assert stored(*words)[1].endswith("2 of 2 stored cells measured again: 1 agree, 1 differ\n")
    with opened(path) as folder:
        described(folder, cpu="another")
    assert "Another processor or torch rounds differently" in stored(*words)[1]


def test_quiet_runs_print_nothing_and_mistakes_stay_visible(stored):
    assert stored("-q", "experiment=toy", "width=[2]", "seed=43") == (0, "", "")
    assert "nothing" in stored.refusal("-q", "experiment=toy", "nothing=1")


def test_data_list_says_where_it_looks_and_what_to_do(stored, tmp_path, monkeypatch):
    out = stored.output("data", "list")
    assert "hess-run data fetch cifar10" in out and "data/ in the current folder" in out
    monkeypatch.setenv("HESS_DATA", str(tmp_path / "pixels"))
    out = stored.output("data", "list", "cifar100")
    assert f"{tmp_path / 'pixels' / 'cifar-100-binary'} ($HESS_DATA)" in out
    assert "cifar10:" not in out and "  note " not in out


WITHOUT_RESULTS = (
    "why dag.T5 outputs=none", "verify experiment=toy seed=7",
    "report experiment=toy samples=7", "publish toy",
)  # fmt: skip


def test_without_published_results_a_command_says_where_they_are(command):
    for words in WITHOUT_RESULTS:
        (command.folder / "none").mkdir(exist_ok=True)
        said = "".join(map(str, command(*words.split())))
        assert "published results are not here" in said, words


def test_a_figure_that_fails_is_no_success(stored, monkeypatch):
    monkeypatch.setenv("TOY_FIGURES", "1")
    monkeypatch.setenv("MPLBACKEND", "a_backend_of_another_environment")
    stored.output("report", "experiment=toy")
    monkeypatch.setattr(ToyAnalysis, "_line", lambda self: self.tables["none"])
    shutil.rmtree("outputs/toy/figures")
    for words in (("report",), ("report", "experiment=toy"), ("experiment=toy",)):
        status, out, _ = stored(*words)
        assert status == 1 and "failed: figure numbers: KeyError" in out
