"""What commands print for programs and people: --json, -q, open, data list."""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from runner import cli
from runner.store import tables


@pytest.fixture
def command(toy_conf, tmp_path, monkeypatch, capsys):
    """Run a command in this process, in a folder with one stored cell of three: (status, output, errors)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HESS_QUIET", "0")
    monkeypatch.delenv("HESS_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", ["hess-run"])
    monkeypatch.setattr("webbrowser.open", lambda address: print(f"opened {address}"))

    def call(*argv: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ending:
            cli.main(list(argv))
        return (int(ending.value.code or 0), *capsys.readouterr())

    assert call("experiment=toy", "width=[1]", "shape=[round]")[0] == 0
    return call


def test_list_and_plan_have_json(command):
    status, out, _ = command("list", "--json")
    (toy,) = json.loads(out)
    assert status == 0 and (toy["experiment"], toy["cells"], toy["stored"], toy["seeds"]) == ("toy", 6, 1, [42])
    status, out, _ = command("plan", "experiment=toy", "--json")
    states = [record["state"] for record in json.loads(out)]
    assert status == 0 and (states.count("stored"), states.count("to run")) == (1, 5)


def test_why_store_and_results_have_json(command):
    for words in (["store", "check"], ["why", "outputs/toy/numbers.csv:2"], ["results", "toy"]):
        status, out, _ = command(*words, "--json")
        assert status == 0 and json.loads(out)


def test_the_command_of_a_published_row_names_no_published_folder(command, published):
    _, out, _ = command("why", "dag.T5.gelu.final.gap_global")
    assert "hess-run -m experiment=exp3_gn_gap activation=gelu seed=42,43,44,45,46" in out.splitlines()[-1]


def test_verify_has_json_for_cells_that_agree_and_that_differ(command):
    words = ("verify", "experiment=toy", "width=[1]", "shape=[round]", "sample=0", "--json")
    status, out, _ = command(*words)
    record = json.loads(out)
    assert status == 0 and record["stored"] == 1
    assert [(cell["experiment"], cell["seed"], cell["agrees"]) for cell in record["cells"]] == [("toy", 42, True)]
    (folder,) = Path("outputs/toy/cells").glob("[!.]*")
    meta, table = tables.read_json(folder / "cell.json"), tables.read(folder / "numbers.csv.gz")
    tables.write(table.assign(value=table["value"] + 1), folder / "numbers.csv.gz")
    meta["sha256"]["numbers"] = sha256((folder / "numbers.csv.gz").read_bytes()).hexdigest()
    (folder / "cell.json").write_text(json.dumps(meta))
    status, out, _ = command(*words)
    (cell,) = json.loads(out)["cells"]
    assert status == 1 and not cell["agrees"] and "differs: numbers.value row" in cell["found"]


def test_quiet_runs_print_nothing_and_mistakes_stay_visible(command):
    assert command("-q", "experiment=toy", "width=[2]", "shape=[round]") == (0, "", "")
    status, out, err = command("-q", "experiment=toy", "nothing=1")
    assert (status, out) == (2, "") and "nothing" in err


def test_one_figure_is_of_one_experiment(command):
    assert "figure: expected experiment=NAME next to it" in command("report", "figure=none")[2]
    assert "figure: expected one of" in command("report", "experiment=toy", "width=[1]", "figure=none")[2]


def test_open_names_the_page_and_opens_it(command):
    page = Path("outputs/toy/index.html").absolute()
    assert command("open", "toy") == (0, f"{page}\nopened {page.as_uri()}\n", "")
    page.unlink()
    status, _, err = command("open", "toy")
    assert status == 2 and "hess-run report experiment=toy" in err and err.count("\n") == 1


def test_data_list_says_where_it_looks_and_what_to_do(command, tmp_path, monkeypatch):
    status, out, _ = command("data", "list")
    assert status == 0 and "hess-run data fetch cifar10" in out and "data/ in the current folder" in out
    monkeypatch.setenv("HESS_DATA", str(tmp_path / "pixels"))
    status, out, _ = command("data", "list", "cifar100")
    assert status == 0 and f"{tmp_path / 'pixels' / 'cifar-100-binary'} ($HESS_DATA)" in out and "cifar10:" not in out
    assert "  note " not in out


@pytest.mark.parametrize(
    "words",
    [
        "why dag.T5 outputs=none",
        "verify experiment=toy seed=7",
        "open outputs=none",
        "report experiment=toy samples=7",
        "site outputs=none",
    ],
)
def test_without_published_results_a_command_says_where_they_are(command, words):
    assert "published results are not here: clone the repository" in "".join(map(str, command(*words.split())))
