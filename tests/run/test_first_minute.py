"""The first minute: a result that is measured at once, where things came from, and what a run says
before it starts."""

import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pytest

from experiments.scalar_spectrum import spectra
from experiments.scalar_spectrum.spectra import dense_eigenvalues
from runner.contract import Cell, SettingError
from runner.kinds.dataset import GaussianData
from runner.run.answer_lines import lines
from runner.run.command_line import parse
from runner.run.config.overrides import Arguments
from runner.run.demo import FIGURE, demo, demo_command
from runner.run.execute import run
from runner.run.forecast import survey
from runner.run.launch import without_stored
from runner.run.provenance import figure_record
from runner.run.why import why
from runner.store.cells import Stored
from runner.store.costs import Costs, duration
from runner.store.job import Job
from runner.store.working import Working
from tests.errors import refusal
from tests.report.test_site import report
from tests.run.conftest import opened
from tests.run.toy import Toy


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Output folder of a demo."""
    folder = tmp_path_factory.mktemp("demo")
    assert demo(folder) == 0
    return folder


def test_the_demo_measures_its_cells_prints_both_sides_and_a_second_call_only_draws(shown, capsys):
    for table in ("claims", "scorecard"):
        verdicts = set(pd.read_csv(shown / "scalar_spectrum" / f"{table}.csv")["verdict"])
        assert not verdicts & {"inconclusive", "refuted", "not reproduced"}
    assert [path.stem for path in shown.rglob("figures/*.png")] == [FIGURE]
    assert (shown / "index.html").is_file()
    before = {path: path.stat().st_mtime_ns for path in shown.rglob("cells/*.zip")}
    assert len(before) == 10 and demo(shown) == 0
    lines = capsys.readouterr().out.splitlines()
    sides = {line.split()[0]: line for line in lines if line.strip()}
    assert "stored" in lines[1] and "Theorem 4" in sides["claim"]
    published = [float(n) for n in re.findall(r"-?\d+\.\d{14}", sides["published"])]
    ours = [float(n) for n in re.findall(r"-?\d+\.\d{14}", sides["ours"])]
    assert len(published) == 2 and published == pytest.approx(ours, rel=1e-10)
    assert sides["verdict"].startswith("verdict    confirmed: ") and "<= 1e-10" in sides["verdict"]
    assert all(Path(sides[place].split()[1]).is_file() for place in ("figure", "page"))
    assert {path: path.stat().st_mtime_ns for path in shown.rglob("cells/*.zip")} == before


WRONG = {
    "verdict    refuted: largest relative difference 1.0e-03": lambda *about: (
        1.001 * dense_eigenvalues(*about)
    ),
    "a cell failed: ValueError: no spectrum": Mock(side_effect=ValueError("no spectrum")),
}


@pytest.mark.parametrize(("said", "values"), WRONG.items(), ids=list(WRONG))
def test_the_demo_says_when_a_formula_is_wrong_or_a_cell_fails(
    said, values, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("runner.run.demo.CELLS", ("part=[cells]", "seed=42"))
    monkeypatch.setattr("runner.run.demo.FIGURE", "none")
    monkeypatch.setattr(spectra, "dense_eigenvalues", values)
    assert demo_command(parse(["demo", f"outputs={tmp_path}"])) == ("failed" in said)
    assert said in capsys.readouterr().out


def said(*about):
    """The answers of `hess-run why`, whatever the width of their columns."""
    return re.sub(" +", " ", "\n".join(lines(why(*about))))


def test_why_names_cells_commit_processor_and_command(shown, monkeypatch):
    monkeypatch.setattr("runner.run.answer_lines.SHOWN", 3)
    figure = next(shown.rglob("figures/*.png"))
    text = said(str(figure))
    command = f"hess-run -m experiment=scalar_spectrum outputs={shown} "
    verbs = "\n command hess-run ", "\n redraw hess-run report "
    facts = "cells 10\n", "seed=42", "commits", "CPU", "and 7 more\n", f"figure={FIGURE}"
    for expected in (*facts, command, *verbs):
        assert expected in text, text
    assert figure_record(figure)["experiment"] == "scalar_spectrum"


def test_why_knows_a_copied_figure_by_what_it_says_of_itself(shown, tmp_path):
    copy = shutil.copy(next(shown.rglob("figures/*.png")), tmp_path / "slide.png")
    assert "cells 10\n" in said(str(copy), shown)
    assert "its cells are not here" in said(str(copy), tmp_path)


def test_why_of_a_line_and_of_a_cell(shown, tmp_path):
    folder = shutil.copytree(shown, tmp_path / "copy") / "scalar_spectrum"
    table = folder / "relu_cells.csv"
    table.write_text(table.read_text().replace("cells,42,1,", "cells,41,1,"))
    assert "cells 1" in said(f"{table}:2")
    assert "cells 0" in said(f"{table}:3")  # only those that agree with it
    for wrong in (f"{table}:99999", "nowhere.png", __file__):
        with refusal("why: .*line" if ":" in wrong else "why: ", SettingError):
            why(wrong)
    cell = min((folder / "cells").glob("*.zip"))
    assert ", whole" in why(str(cell))[0].title
    with opened(cell) as entries:
        (entries / "relu_cells.csv.gz").write_bytes(b"")
    assert "damaged: is not what was stored" in why(str(cell))[0].title
    cell.write_bytes(b"")
    assert "damaged" in why(str(cell))[0].title


def test_a_run_says_first_what_it_will_measure_stored_cells_apart(tmp_path):
    toy = Toy(width=[1, 2, 3], shape=["round"], dataset=GaussianData(train=8))
    one, *both = (Job("toy", toy, seed, tmp_path, jobs=2) for seed in (42, 42, 43))
    (line,), _ = survey([one])
    assert line.startswith("toy: 0 of 3 cells are stored; 3 to measure: about ")
    run(Job("toy", toy, 42, tmp_path))
    (line,), left = survey(both)
    assert line.startswith("toy: 3 of 6 cells are stored; 3 to measure")
    assert "with 2 processes" in line and left == both[1:]
    (line,), _ = survey([Job("toy", toy, 42, tmp_path)])
    assert line == f"toy: 3 of 3 cells are stored; then the report, below {tmp_path}/toy"


@pytest.mark.parametrize(
    "seconds, shown",
    [
        *[(1.24, "1.2 s"), (99, "99 s"), (150, "2 min"), (5400, "1.5 h")],
        (10 * 365.25 * 86400, "10 years"),
    ],
)
def test_a_time_has_the_unit_that_suits_it(seconds, shown):
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    "seen, predicted",
    [
        ([(4.0, False), (6.0, False), (0.1, True)], 5.0),  # those that trained
        ([(0.1, True), (0.2, True)], 60.0),  # none trained: what the experiment says
        ([(4.2, None), (4.3, None), (78.0, None)], 78.0),  # not recorded: the longest
        # far below what the experiment says: taken from a checkpoint
        ([(4.2, None), (4.3, None)], 60.0),
        ([], 60.0),
    ],
)
def test_costs_are_those_of_cells_that_trained(seen, predicted):
    about = {"params": {"depth": 8}, "peak_memory_mib": 512.0, "wall_seconds": 1.0}
    cells = []
    for seconds, resumed in seen:
        recorded = {} if resumed is None else {"resumed": resumed}
        meta = about | recorded | {"cpu_seconds": seconds}
        cells.append(Stored("x", meta, Working(Path()), {}))
    told = Cell({"depth": 8}, seconds=60.0)
    assert Costs(cells)(told)[0] == predicted
    trained = any(resumed is False for _, resumed in seen)
    pace = predicted / 60 if trained else 1  # of cells with other parameters
    assert Costs(cells, [told])(Cell({"depth": 16}, seconds=120.0))[0] == pytest.approx(120 * pace)


def test_a_sweep_is_handed_on_without_the_seeds_that_are_stored(tmp_path):
    sweep = Arguments(("experiment=toy", "seed=range(0,5)", "samples=3,4"), multirun=True)
    left = [
        Job("toy", Toy(width=[1], shape=["round"], dataset=GaussianData()), seed, tmp_path)
        for seed in (4, 2, 4)
    ]
    assert without_stored(sweep, left).overrides == ("experiment=toy", "seed=2,4", "samples=3,4")


def test_why_opens_a_row_by_its_anchor(tmp_path):
    report(tmp_path)
    text = said(f"{tmp_path}/exp3/index.html#dag.T5.relu.final.0.gap", tmp_path)
    expected = ["published 1 ± 0.1", "seeds 42: 1, 43: 1", "cells 1", "reproduced"]
    expected.append("activation=relu seed=42")
    assert all(line in text for line in expected), text
    assert "R falls with d" in said("dag.exp3.falls", tmp_path)
    with refusal(r"did you mean dag\.T5\.relu\.final\.0\.gap", SettingError):
        why("dag.T5.relu.final.0.gab", tmp_path)
    with refusal("no report below", SettingError):
        why("hsr.T5.relu", tmp_path)
