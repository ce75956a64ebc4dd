"""`runner.results`: merged tables of the working folder and of the published cells."""

import doctest
import json
import re

import pytest

from runner import cli, results
from runner.contract import SettingError
from runner.run.config.jobs import build_job
from runner.run.execute import run
from runner.store.archive import archive_bytes
from tests.errors import refusal
from tests.run.conftest import TWO_CELLS, opened, packed, toy_conf  # noqa: F401
from tests.run.toy import Toy


@pytest.fixture
def places(toy_conf, tmp_path, monkeypatch):  # noqa: F811
    """(output folder with cells of seed 43, folder with the published cells of seed 42)."""
    run(build_job([*TWO_CELLS, f"outputs={tmp_path / 'first'}"]))
    folder = tmp_path / "published" / "toy"
    folder.mkdir(parents=True)
    (folder / "cells.zip").write_bytes(archive_bytes(packed(tmp_path / "first" / "toy" / "cells")))
    monkeypatch.setenv("HESS_PUBLISHED", str(folder.parent))
    run(build_job([*TWO_CELLS, f"outputs={tmp_path / 'outputs'}", "seed=43"]))
    return tmp_path / "outputs", folder


def loaded(places, *words, **about):
    return results.load("toy", *words, outputs=places[0], **about)


def test_both_layers_are_merged_in_the_order_of_grid_and_seed(places):
    tables = loaded(places)
    assert list(tables) == ["keys", "numbers"] and tables.rows == {"numbers": 80, "keys": 4}
    keys = tables["keys"][["width", "seed"]].to_numpy().tolist()
    assert keys == [[1, 42], [1, 43], [2, 42], [2, 43]]
    assert "numbers (80 rows stored)" in repr(tables)
    with pytest.raises(KeyError, match="expected one of keys, numbers"):
        tables["number"]
    run(build_job([*TWO_CELLS, "experiment.samples=3", f"outputs={places[0]}"]))
    assert loaded(places).rows["numbers"] == 80
    # by these settings alone
    assert loaded(places, "samples=3").rows["numbers"] == 6


DAMAGE = {
    "a table": lambda cell: (cell / "numbers.csv.gz").write_bytes(b"x"),
    "a table that is gone": lambda cell: (cell / "keys.csv.gz").unlink(),
    "cell.json": lambda cell: (cell / "cell.json").write_text("{"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_cells_are_counted_first_with_exit_status_1(places, capsys, recwarn, kind):
    loaded(places)
    assert not recwarn.list
    with opened(min((places[0] / "toy" / "cells").iterdir())) as cell:
        DAMAGE[kind](cell)
    first = re.compile(
        r"(hess-run: )?1 damaged cell is left out: toy: damaged cell \w+ .*store check"
    )
    with pytest.warns(UserWarning, match=first) as warned:
        tables = loaded(places)
    assert warned[0].filename == __file__ and "1 damaged cells left out" in repr(tables)
    assert (len(tables.cells), len(tables.damaged), tables.rows["numbers"]) == (3, 1, 60)
    place = f"outputs={places[0]}"
    capsys.readouterr()
    assert cli.dispatch(["report", "experiment=toy", "seed=43", place]) == 1
    assert first.match(capsys.readouterr().out.splitlines()[0])
    assert cli.dispatch(["list", "--json", place]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["stored"] == 3  # the report has moved it away


def test_a_damaged_cell_that_is_published_is_no_loss(places, recwarn):
    outputs = places[0].parent / "first"
    min((outputs / "toy" / "cells").iterdir()).write_bytes(b"x")
    assert len(results.load("toy", outputs=outputs).cells) == 2 and not recwarn.list


def test_a_damaged_archive_is_said(places):
    (places[1] / "cells.zip").write_bytes(b"PK")
    with pytest.warns(UserWarning, match=r"cells.zip cannot be read .*count as not stored"):
        assert len(loaded(places).cells) == 2
    for cell in (places[0] / "toy" / "cells").iterdir():
        cell.write_bytes(b"PK")
    with refusal("no cell is whole; ", SettingError):
        loaded(places)


def test_where_nothing_is_stored_the_error_says_where_it_was_looked_for(places, monkeypatch):
    with refusal(f"published results are read from {places[1].parent}", SettingError):
        loaded(places, "samples=4")
    monkeypatch.setenv("HESS_PUBLISHED", "")
    with refusal("set HESS_PUBLISHED to a clone", SettingError):
        loaded(places, "samples=4")
    with refusal("did you mean toy", SettingError):
        results.load("tyo")


@pytest.mark.usefixtures("published")
def test_the_example_of_the_docstring():
    assert doctest.testmod(results).failed == 0


def test_the_papers_rows_come_first_and_all_on_request(places, monkeypatch):
    monkeypatch.setattr(Toy, "paper_seeds", (43,))
    monkeypatch.setattr(Toy, "paper_rows", {"index": 0})
    tables = loaded(places)
    assert set(tables["keys"]["seed"]) == {43} and set(tables["numbers"]["index"]) == {0}
    assert "cells (2 more with all=True)" in repr(tables)
    whole = loaded(places, all=True)
    assert set(whole["keys"]["seed"]) == {42, 43} and len(whole["numbers"]) == 80
    monkeypatch.setattr(Toy, "paper_seeds", (1,))
    with refusal("found 4 others; load them with all=True", SettingError):
        loaded(places)
