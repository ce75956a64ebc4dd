"""hess-run diagnose: one line for a mistake, tables against independent numbers, and nothing
measured twice."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from runner import cli
from runner.contract import SettingError
from runner.curvature import Dag, exact_blocks
from runner.diagnose.experiment import diagnose as measure
from runner.diagnose.settings import Request
from runner.run.keys import read_keys
from runner.store.job import check_outputs
from tests.curvature.oracles import flat_gradient
from tests.diagnose import targets
from tests.diagnose.conftest import diagnose, made, table, took
from tests.errors import mistakes, refusal
from tests.run.conftest import command_environment, forked

TARGETS = str(Path(targets.__file__))


def scalars(folder):
    return table(folder, "scalars").set_index("quantity")["value"]


MISTAKES = mistakes("""
target=nothing.py:f | there is no file nothing.py
target=tests.diagnose.targets | expected package.module:function
target=tests.diagnose.target:batch | cannot be imported: ModuleNotFoundError
btach | did you mean batch?
three | has no function three
NET | targets:NET is a network; give a function without parameters that returns it
batch nodse=1 | did you mean nodes?
batch nodes=7 | no submodule is called '7'
batch seed=x | seed: expected a whole number, found 'x'
batch memory=0 | memory: expected a value above zero
batch force=maybe | expected true or false
batch steps=a | steps: expected a list of whole numbers
batch parts=layres | did you mean layers?
batch device=gpu0 | device: gpu0 cannot be used
batch outputs=/dev/null | found the file
in_training_mode | training mode
no_module | expected a torch.nn.Module, found str
two_things | it returned (Sequential, CrossEntropyLoss)
wrong_loss | loss(module(input), target) failed
fails | KeyError
takes_an_argument | must take no arguments (missing a required
returns_an_object | as in output=logits; there are logits, hidden.0
empty_batch | the loss is not finite
empty_loader | expected batches (input, target), found nothing
frozen | has no parameter that requires a gradient
summed_batches | the loss is a sum over the examples
not_finite | the loss is not finite
random_loss | two evaluations of the loss differ
of_dicts | found dict: give ({name: input, ...}, target)
of_three | found (Tensor, Tensor, Tensor): give ((input, input, ...), target)
class_of_loss | found the class CrossEntropyLoss; return CrossEntropyLoss()
number_of_loss | the loss returned float: expected a scalar tensor
batch checkpoints=no*.pt | expected files that match
batch parts=noise | noise needs a loader, and the target gives one batch
own_loss | name its loss, as in output=loss; there are logits, loss
batch memory=inf | memory
batch memory=nan | memory
batch threads=100000 | threads
batch seed=-1 | seed
batch seed=1180591620717411303424 | seed
nodes=0 | target=package.module:function or target=file.py:function is missing
""")
"""A first word without = is a function of targets.py."""


@pytest.mark.parametrize("words, expected", MISTAKES, ids=str)
def test_a_mistake_is_one_line_and_nothing_is_written(words, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(TARGETS).parents[2]))
    first, *rest = words
    target = first if "=" in first else f"target=tests.diagnose.targets:{first}"
    with refusal(re.escape(expected), SettingError):
        request = read_keys(Request, [target, *rest])
        check_outputs(request.folder)
        measure(request, lambda line: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["diagnose"], ["diagnose", "--help"]])
def test_help(words, capsys):
    with pytest.raises(SystemExit) as ending:
        cli.main(words)
    assert ending.value.code == 0
    out = capsys.readouterr().out
    assert "target=package.module:function" in out and "one of network" in out


def test_tables_hold_what_the_engine_measures(tmp_path):
    said, folder = made("batch", tmp_path, "nodes=0,2,4", "parts=network,layers")
    module, _, (x, y) = targets.batch()
    dag = Dag.from_sequential(module, names=["0", "1", "2", "3", "4"])
    blocks = exact_blocks(dag, x, y)
    layers = table(folder, "layers").set_index(["v", "w"])
    assert len(layers) == 6
    for pair, row in layers.iterrows():
        assert row["R"] == pytest.approx(float(blocks[pair].norm()), rel=1e-8)
        rank = float(blocks[pair].norm() / torch.linalg.matrix_norm(blocks[pair], 2)) ** 2
        assert row["D"] == pytest.approx(rank, rel=1e-6)
    found = scalars(folder)
    assert found["loss"] == pytest.approx(F.cross_entropy(module(x), y).item(), rel=1e-12)
    gradient = flat_gradient(F.cross_entropy(module(x), y), module.parameters())
    assert found["gradient norm"] == pytest.approx(float(gradient.norm()), rel=1e-10)
    assert found["parameters"] == sum(p.numel() for p in module.parameters())
    page = (folder / "index.html").read_text()
    assert "predicted" in page and any("predicted" in line for line in said)


def test_the_second_run_measures_nothing_and_a_change_everything(tmp_path):
    parts = "parts=network,layers"
    first, folder = made("batch", tmp_path, parts)
    before = (folder / "layers.csv").read_bytes()
    again, _ = made("batch", tmp_path, parts)
    assert took(first) == ["network", "layers"] and took(again) == []
    assert (folder / "layers.csv").read_bytes() == before
    assert took(made("batch", tmp_path, "force=true", "parts=layers")[0]) == ["layers"]
    source = Path(TARGETS).read_text().replace("seed: int = 0", "seed: int = 1")
    changed = tmp_path / "targets.py"
    changed.write_text(source)
    other, _ = made("batch", tmp_path, parts, file=str(changed))
    assert "layers" in took(other)  # other weights, the same name
    changed.write_text(f"# the same networks\n{source}")
    assert took(made("batch", tmp_path, parts, file=str(changed))[0]) == []


def test_a_training_that_breaks_off_gets_the_page_of_what_came_before(tmp_path):
    with refusal("the disk is full", SettingError):
        diagnose("breaks_off", tmp_path, "parts=network")
    folder = tmp_path / "it"
    assert set(table(folder, "scalars")["step"]) == {0, 1}
    assert (folder / "index.html").is_file()


def test_steps_of_a_training(tmp_path):
    made("training", tmp_path, "parts=network")
    said, folder = made("training", tmp_path, "parts=network", "steps=0,2")
    assert set(table(folder, "scalars")["step"]) == {0, 2} and took(said) == []
    with refusal(r"steps: the target never yielded step\(s\) \[7\]"):
        diagnose("training", tmp_path, "parts=network", "steps=7")


def test_a_training_draws_the_same_numbers_whatever_is_stored(tmp_path):
    made("drawing", tmp_path, "parts=network,layers")
    for words in (("parts=network,layers",), ("parts=network", "steps=1")):
        assert took(made("drawing", tmp_path, *words)[0]) == []


@pytest.mark.parametrize(
    "function, message",
    [
        ("twice", "step 3 was yielded twice"),
        ("breaks_later", "step 1: .* failed on .*ValueError"),
        ("exits_later", r"targets.py:\d+ called sys.exit\(3\); remove"),
    ],
)
def test_a_later_snapshot_that_is_a_mistake_is_one_line(function, message, tmp_path):
    with refusal(message):
        diagnose(function, tmp_path, "parts=network")
    assert len(list(tmp_path.glob("*/report.md"))) == 1  # of the steps before


def test_gradient_noise_of_a_loader(tmp_path):
    _, folder = made("loader", tmp_path, "parts=network,noise")
    module, loss, batches = targets.loader()
    rows = [flat_gradient(loss(module(x), y), module.parameters()) for x, y in batches]
    stacked = torch.stack(rows)
    trace = 8 * float(stacked.var(0).sum())
    signal = float(stacked.mean(0).square().sum()) - trace / 24
    assert scalars(folder)["trace of the gradient's covariance"] == pytest.approx(trace, rel=1e-9)
    found = scalars(folder)["gradient noise scale"]
    assert found == pytest.approx(trace / signal, rel=1e-9) if signal > 0 else found != found
    _, said, _ = diagnose("loader", tmp_path, "parts=noise", "batches=2")
    assert any("needs 3 batches" in line for line in said)


def test_a_torch_warning_about_the_loss_is_a_note(tmp_path):
    """A target of another shape than the output, which torch broadcasts."""
    _, said, folder = diagnose("flat_regression", tmp_path, "parts=network")
    assert any("warning: Using a target size" in line for line in said)
    assert table(folder, "notes")["note"].str.contains("target size").any()


def test_layers_that_were_not_named_and_cannot_be_measured_are_a_row(tmp_path):
    _, folder = made("without_layers", tmp_path, "parts=network,layers,certificate")
    assert scalars(folder)["loss"] > 0
    assert table(folder, "layers")["status"].str.contains("no layer with parameters").all()
    assert table(folder, "certificate")["ok"].tolist() == [0, 1]


ARGPARSE = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr'{})\np.parse_args()\n"
)
ACTIONS = {
    "sys.exit": ("import sys\nsys.exit(0)\n", 2, "net.py:2 called sys.exit(0)"),
    "argparse": (
        ARGPARSE.format(", required=True"),
        2,
        "net.py:4 reads command-line arguments (argparse)",
    ),
    "fork": ("import os\nos.fork()\n", 0, "1 parts measured, 0 were stored before"),
    "print": (ARGPARSE.format("") + "print('loading')\nprint('done')\n", 0, "loading\ndone\n"),
}


@pytest.mark.parametrize("what", ACTIONS)
def test_a_target_cannot_end_or_copy_the_command(what, tmp_path):
    code, status, line = ACTIONS[what]
    (tmp_path / "net.py").write_text(f"{code}\nfrom tests.diagnose.targets import batch\n")
    words = ["diagnose", "target=net.py:batch", "outputs=out", "parts=network"]
    ended = forked(words, tmp_path, command_environment())
    assert ended.returncode == status, ended
    assert line in ended.stdout + ended.stderr and "Traceback" not in ended.stderr
    assert ended.stdout.count("parts measured") == (1 if status == 0 else 0)
    if status == 2:
        assert ended.stdout == "" and not (tmp_path / "out").exists()
        assert ended.stderr.splitlines()[-1].startswith("hess-run: target:")
    if what == "print":
        assert "loading" not in ended.stdout


def test_under_torchrun_the_first_process_measures(tmp_path, monkeypatch, capsys):
    words = ["diagnose", f"target={TARGETS}:in_a_group", f"outputs={tmp_path}", "parts=network"]
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit) as ending:
        cli.main(words)
    assert ending.value.code == 0
    assert capsys.readouterr() == ("", "") and not list(tmp_path.iterdir())
    told = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    ended = forked(words, tmp_path, {**command_environment(), **told})
    assert ended.returncode == 0 and "  gradient norm:" in ended.stdout, ended
    assert (tmp_path / "targets-in_a_group" / "index.html").exists()


@pytest.mark.slow
def test_torchrun_measures_once(tmp_path):
    words = ["diagnose", f"target={TARGETS}:in_a_group", f"outputs={tmp_path}", "parts=network"]
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "runner"]
    command = [sys.executable, *start, *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert sum(line.startswith("  gradient norm:") for line in ended.stdout.splitlines()) == 1
    assert (tmp_path / "targets-in_a_group" / "index.html").exists()
