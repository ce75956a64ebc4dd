"""What commands print for programs and people: --json, -q, open, data list."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from runner.store import tables
from runner.store.store import Store


@pytest.fixture
def stored(command, measured, monkeypatch):
    """Run a command in a folder with the stored cells of seed 42: (status, output, errors)."""
    monkeypatch.setenv("HESS_QUIET", "0")
    monkeypatch.delenv("HESS_DATA", raising=False)
    monkeypatch.setattr("webbrowser.open", lambda address: print(f"opened {address}"))
    shutil.copytree(measured, "outputs")
    return command


def test_what_is_stored_has_json_and_its_page_is_opened(stored):
    assert stored("report", "experiment=toy")[0] == 0
    status, out, _ = stored("list", "--json")
    (toy,) = json.loads(out)
    assert status == 0 and (toy["experiment"], toy["cells"], toy["stored"], toy["seeds"]) == ("toy", 6, 6, [42])
    status, out, _ = stored("plan", "-m", "experiment=toy", "width=1,2", "seed=42,43", "--json")
    states = [record["state"] for record in json.loads(out)]
    assert status == 0 and (states.count("stored"), states.count("to run")) == (4, 4)
    for words in (["store", "check"], ["why", "outputs/toy/numbers.csv:2"], ["results", "toy"]):
        status, out, _ = stored(*words, "--json")
        assert status == 0 and json.loads(out)
    assert "figure: expected experiment=NAME next to it" in stored("report", "figure=none")[2]
    assert "figure: expected one of" in stored("report", "experiment=toy", "figure=none")[2]
    page = Path("outputs/toy/index.html").absolute()
    assert stored("open", "toy") == (0, f"{page}\nopened {page.as_uri()}\n", "")
    page.unlink()
    status, _, err = stored("open", "toy")
    assert status == 2 and "hess-run report experiment=toy" in err and err.count("\n") == 1


def test_the_command_of_a_published_row_names_no_published_folder(stored, published):
    _, out, _ = stored("why", "dag.T5.gelu.final.gap_global")
    assert "hess-run -m experiment=exp3_gn_gap activation=gelu seed=42,43,44,45,46" in out.splitlines()[-1]


def test_verify_has_json_for_cells_that_agree_and_that_differ(stored):
    words = ("verify", "experiment=toy", "width=[1]", "shape=[round]", "sample=0", "--json")
    status, out, _ = stored(*words)
    record = json.loads(out)
    assert status == 0 and record["stored"] == 1
    assert [(cell["experiment"], cell["seed"], cell["agrees"]) for cell in record["cells"]] == [("toy", 42, True)]
    folder = Store(Path("outputs"), "toy").cells / record["cells"][0]["cell"]
    meta, table = tables.read_json(folder / "cell.json"), tables.read(folder / "numbers.csv.gz")
    tables.write(table.assign(value=table["value"] + 1), folder / "numbers.csv.gz")
    meta["sha256"]["numbers"] = sha256((folder / "numbers.csv.gz").read_bytes()).hexdigest()
    (folder / "cell.json").write_text(json.dumps(meta))
    status, out, _ = stored(*words)
    (cell,) = json.loads(out)["cells"]
    assert status == 1 and not cell["agrees"] and "differs: numbers.value row" in cell["found"]


def test_quiet_runs_print_nothing_and_mistakes_stay_visible(stored):
    assert stored("-q", "experiment=toy", "width=[2]", "seed=43") == (0, "", "")
    status, out, err = stored("-q", "experiment=toy", "nothing=1")
    assert (status, out) == (2, "") and "nothing" in err


def test_data_list_says_where_it_looks_and_what_to_do(stored, tmp_path, monkeypatch):
    status, out, _ = stored("data", "list")
    assert status == 0 and "hess-run data fetch cifar10" in out and "data/ in the current folder" in out
    monkeypatch.setenv("HESS_DATA", str(tmp_path / "pixels"))
    status, out, _ = stored("data", "list", "cifar100")
    assert status == 0 and f"{tmp_path / 'pixels' / 'cifar-100-binary'} ($HESS_DATA)" in out and "cifar10:" not in out
    assert "  note " not in out


WITHOUT_RESULTS = (
    "why dag.T5 outputs=none", "verify experiment=toy seed=7", "open outputs=none", "report experiment=toy samples=7",
    "site outputs=none",
)  # fmt: skip


def test_without_published_results_a_command_says_where_they_are(command):
    for words in WITHOUT_RESULTS:
        said = "".join(map(str, command(*words.split())))
        assert "published results are not here: clone the repository" in said, words
