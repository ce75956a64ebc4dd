"""The command line as a user meets it: one clear line for a mistake, nothing written, reports that follow the store."""

from __future__ import annotations

import json
import subprocess
import sys

import pandas as pd
import pytest

from runner import cli
from runner.report.collect import collect
from runner.run import config


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  sampels: 3", "did you mean experiment.samples?"),
        ("  samples: lots", "expected a whole number"),
        ("trianing: 3", "did you mean training?"),
        ("dataset:\n  trian: 3", "did you mean dataset.train?"),
    ],
)
def test_a_mistake_inside_an_experiment_file_is_named(line, expected, toy_conf, tmp_path, monkeypatch, capsys):
    path = toy_conf / "experiment" / "toy.yaml"
    text = path.read_text()
    if line.startswith("dataset"):
        path.write_text(text.replace("dataset:\n  train: 8", line))
    elif line.startswith("  "):
        path.write_text(text.replace("  samples: 20", line))
    else:
        path.write_text(text + line + "\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ending:
        cli.main(["experiment=toy"])
    err = capsys.readouterr().err
    assert ending.value.code == 2 and expected in err and err.count("\n") == 1
    assert not (tmp_path / "outputs").exists()


def test_an_unwritable_output_folder_is_refused(toy_conf, tmp_path, capsys):
    with pytest.raises(SystemExit) as ending:
        cli.main(["experiment=toy", "outputs=/proc/nowhere"])
    assert ending.value.code == 2 and "cannot be written" in capsys.readouterr().err


def test_run_multirun_report_and_list(hess_run):
    first = hess_run("experiment=toy")
    assert first.returncode == 0, first.stderr
    assert "6 measured" in first.stdout
    root = hess_run.folder / "outputs" / "toy"
    assert len(pd.read_csv(root / "numbers.csv")) == 6 * 20
    again = hess_run("experiment=toy")
    assert "0 measured, 6 were stored" in again.stdout
    many = hess_run("-m", "experiment=toy", "seed=43,44", "width=1,2,3")
    assert many.returncode == 0, many.stderr
    table = pd.read_csv(root / "numbers.csv")
    assert set(table["seed"]) == {42, 43, 44} and len(table) == 3 * 6 * 20
    manifest = json.loads((root / "manifest.json").read_text())
    assert manifest["seeds"] == [42, 43, 44] and manifest["missing"] == []
    assert pd.read_csv(root / "claims.csv")["verdict"].tolist() == ["confirmed"]
    assert (root / "toy.md").read_text() == "# Toy\n\n360 numbers\n" and "toy.md" in manifest["files"]
    assert "18 (seeds 42-44)" in hess_run("list").stdout
    assert "6 stored, 0 to run" in hess_run("plan", "experiment=toy").stdout
    stored = (root / "numbers.csv").read_bytes()
    assert hess_run("report", "experiment=toy").returncode == 0
    assert (root / "numbers.csv").read_bytes() == stored


def test_other_settings_report_into_a_folder_of_their_own(hess_run):
    hess_run("experiment=toy")
    root = hess_run.folder / "outputs" / "toy"
    stored = (root / "numbers.csv").read_bytes()
    assert hess_run("experiment=toy", "profile=quick").returncode == 0
    assert hess_run("experiment=toy", "scale=3.0").returncode == 0
    assert (root / "numbers.csv").read_bytes() == stored
    assert len(pd.read_csv(root / "quick" / "numbers.csv")) == 2 * 5
    (other,) = root.glob("paper-*")
    assert len(pd.read_csv(other / "numbers.csv")) == 6 * 20


def test_a_partial_grid_says_what_is_missing_and_how_to_fill_it(hess_run):
    done = hess_run("experiment=toy", "fail_at=2")
    assert done.returncode == 1 and "told to" in done.stderr
    root = next((hess_run.folder / "outputs" / "toy").glob("paper-*"))
    manifest = json.loads((root / "manifest.json").read_text())
    assert len(manifest["missing"]) == 2 and len(manifest["failures"]) == 2
    (command,) = manifest["fill_commands"]
    mended = hess_run(*command.split()[1:], TOY_MENDED="1")
    assert mended.returncode == 0, mended.stderr
    assert json.loads((root / "manifest.json").read_text())["missing"] == []


def test_help_and_listing_do_not_load_torch(toy_conf):
    for verb in ("--help", "list"):
        code = (
            "import sys; from runner import cli\n"
            f"try: cli.main([{verb!r}])\nexcept SystemExit as e: assert not e.code\n"
            "heavy = {'torch', 'pandas', 'scipy', 'matplotlib'} & set(sys.modules)\nassert not heavy, heavy"
        )
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize(
    "sweep",
    [
        ("width=3,1,2",),
        pytest.param(
            ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "shape=square,round"), marks=pytest.mark.slow
        ),
    ],
)
def test_the_same_command_gives_the_same_bytes_whoever_runs_it(sweep, hess_run):
    hess_run("experiment=toy", "outputs=a")
    hess_run("-m", "experiment=toy", "seed=42", *sweep, "outputs=b")

    def tables(name):
        cells = hess_run.folder / name / "toy" / "cells"
        return {str(p.relative_to(cells)): p.read_bytes() for p in cells.rglob("*.csv.gz")}

    assert tables("a") == tables("b") and len(tables("a")) == 12


def test_a_failing_cell_off_the_grid_says_why_and_how_to_fill_it(hess_run):
    hess_run("experiment=toy", "width=1")
    failed = hess_run("experiment=toy", "width=-7", "shape=round")
    assert failed.returncode == 1, failed.stderr
    assert "failed: seed=42 width=-7 shape=round: RuntimeError: widths have no sign" in failed.stderr
    manifest = json.loads((hess_run.folder / "outputs/toy/manifest.json").read_text())
    assert [(f["cell"], "no sign" in f["error"]) for f in manifest["failures"]] == [("width=-7 shape=round", True)]
    grid, own = manifest["fill_commands"]
    assert grid == "hess-run experiment=toy seed=42"
    assert own == "hess-run experiment=toy experiment.width=-7 experiment.shape=round seed=42"
    assert hess_run(*own.split()[1:], TOY_MENDED="1").returncode == 0
    manifest = json.loads((hess_run.folder / "outputs/toy/manifest.json").read_text())
    assert manifest["failures"] == [] and manifest["fill_commands"] == [grid]
    assert len(pd.read_csv(hess_run.folder / "outputs/toy/numbers.csv")) == 3 * 20


def test_a_sweep_off_the_grid_names_each_way_to_ask(toy_conf, tmp_path):
    words = ["experiment=toy", f"outputs={tmp_path / 'o'}", "experiment.shape=round"]
    jobs = [
        config.build_job([*words, f"experiment.width={width}", f"seed={seed}"])
        for width in (-1, 7)
        for seed in (42, 43)
    ]
    jobs[0].store.failures.mkdir(parents=True)
    ((cell_id, _),) = jobs[0].cells()
    jobs[0].store.record_failure(cell_id, {"error": "ValueError: no sign"})
    found = collect(jobs, config.protocol)
    assert [(str(cell), cell.error) for cell in found.failures] == [
        ("seed=42 width=-1 shape=round", "ValueError: no sign")
    ]
    outputs = f"outputs={tmp_path / 'o'}"
    assert found.fill_commands == [
        f"hess-run -m experiment=toy {outputs} seed=42,43",
        f"hess-run -m experiment=toy {outputs} experiment.shape=round experiment.width=-1 seed=42,43",
        f"hess-run -m experiment=toy {outputs} experiment.shape=round experiment.width=7 seed=42,43",
    ]
    assert len(found.missing) == 2 * 6 + 4
