"""Hydra's own options, help, sweeps over names and numbers, folders of one's own, and Ctrl-C at an
early moment."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runner import cli
from runner.contract import SettingError
from runner.run.command_line import parse
from runner.run.config import compose, files
from runner.run.config.experiment import preview
from runner.run.config.files import experiment_names
from runner.run.config.jobs import build_jobs
from runner.run.config.overrides import expand
from runner.run.forecast import cell_lines, planned
from runner.run.launch import _targets
from tests.errors import mistakes, refusal
from tests.run.conftest import command_environment, forget


def test_cfg_shows_the_job_that_would_run_profile_included(command):
    status, out, err = command("--cfg", "job", "experiment=toy", "seed=43", "profile=quick")
    assert (status, err) == (0, "")
    assert "seed: 43" in out and "samples: 5" in out and "hydra:" not in out
    assert list(command.folder.iterdir()) == []


def test_a_fetched_data_set_is_said_to_be_complete_and_where(command, monkeypatch):
    monkeypatch.setattr("runner.data.fetch.fetch", lambda name, **_: Path("there", name))
    assert command("data", "fetch", "cifar10")[:2] == (0, "cifar10: complete in there/cifar10\n")


SHOWN = mistakes("""
-c all experiment=toy | samples: 20
-c all experiment=toy | hydra:
--cfg hydra -m experiment=toy seed=1,2 | launcher:
--info defaults experiment=toy | experiment/toy
--info plugins | BasicSweeper
--hydra-help | Hydra
-sc query=bash | experiment=toy
list --help | hess-run list
report --help | hess-run report
report --help | one of png, pdf, svg
data --help | hess-run data
experiment=toy --help | toy: Toy
experiment=toy --help | one of round, square
list toy | toy: Toy
list toy | one of round, square
list experiment=toy dataset.train=6 | a whole number = 6
list dataset=gaussian | taken by: toy
list toy profile=quick | 2 cells: 0 stored, 2 to run
--help | experiments: toy
""")


def test_help_and_hydras_own_options(command, monkeypatch):
    monkeypatch.setenv("COMP_LINE", "hess-run experiment=to")
    monkeypatch.setenv("COMP_POINT", "22")
    for words, expected in SHOWN:
        assert expected in command.output(*words), words
    assert list(command.folder.iterdir()) == []


MISTAKES = mistakes("""
site to=there | hess-run report fills the output folder
run experiment=toy | a run needs no verb
experiment=tyo | did you mean toy?
exprimnt=toy | did you mean experiment?
experiment=toy widht=3 | did you mean experiment.width?
experiment=toy dataset.trian=3 | did you mean dataset.train?
experiment=toy dataset_train=3 | did you mean dataset.train?
list outputz=there | did you mean outputs?
experiment=toy dataset=gausian | did you mean gaussian?
experiment=toy profile=quik | did you mean quick?
experiment=toy shape=rund | did you mean round?
experiment=toy samples=abc | expected a whole number, found 'abc'
experiment=toy width=[a] | expected a list of whole numbers
experiment=toy samples=-1 | expected a value above zero, found -1
experiment=toy width=[] | found an empty list
experiment=toy width=[2,1,2] | expected each value once, found 2 twice
experiment=toy dataset.variance=-1 | expected a value above zero
experiment=toy training=descent | does not use this group
experiment=toy seed=1,2 | need -m
experiment=toy device=gpu | device: expected cpu
experiment=toy +foo=3 | foo is not a setting
experiment=toy foo | expected key=value
experiment=toy --foo | unrecognized arguments: --foo
experiment=toy samples=[ | experiment.samples: cannot read 'experiment.samples=['
experiment=toy outputs=/dev/null | found the file
lst | did you mean list?
list foo | list: expected a part of an experiment's name
data fetch | data fetch: expected one of cifar10, cifar100
data fetch cifar11 | did you mean cifar10
--cfg job | expected experiment=NAME, found none
--cfg nothing experiment=toy | invalid choice
--config-path x experiment=toy | --config-path cannot be set
--config-dir nowhere experiment=toy | --config-dir: expected a folder
--info -m experiment=toy seed=1,2 | --info: expected neither --cfg nor --multirun
experiment=toy ~seed | seed cannot be removed; set it with seed=VALUE
experiment=toy ~experiment | experiment cannot be removed; set it with experiment=VALUE
experiment=toy ~dataset | dataset cannot be removed; set it with dataset=VALUE
experiment=toy --force | --force: write force=true, without dashes
experiment=toy --seed | --seed: write seed=VALUE, without dashes
toy | did you mean experiment=toy?
experiment=toy hydra.job.chdir=true | hydra.job.chdir cannot be set
experiment=toy hydra.run.dir=sub | set outputs=PATH
experiment=toy +hydra.nokey=1 | +hydra.nokey cannot be set
-m experiment=toy ~hydra/launcher | ~hydra/launcher cannot be set
-m experiment=toy hydra/launcher=nope | hydra/launcher=nope: no such launcher
experiment=toy experiment._target_=evil.Thing | _target_ cannot be set on the command line
experiment=toy dataset.kind=other | the kind belongs to its file
-m experiment=toy seed=interval(0,1) | seed: expected values to sweep over
-m experiment=glob(nope*) | experiment: expected at least one value
experiment=toy device=cuda:7 | toy runs on cpu only
experiment=toy outputs= | outputs: expected a path
experiment=toy seed=${nokey} | seed
experiment=toy jobs=??? | jobs
show toy | hess-run list NAME
plan experiment=toy | hess-run list NAME
list tyo | did you mean toy?
list toy widht=3 | did you mean experiment.width?
list dataset=gausian | did you mean gaussian?
experiment=toy seed=+42 | seed: expected a number of digits alone
experiment=toy seed=00042 | seed: expected a whole number, found '00042'
-m experiment=toy seed=4_2,43 | seed: expected a number of digits alone
experiment=toy width=[+1] | width: expected a number of digits alone
experiment=toy scale=nan | experiment.scale: expected a finite number, found nan
experiment=toy dataset.variance=inf | dataset.variance: expected a finite number
verify experiment=toy sample=1_0 | sample: expected a number of digits alone
verify experiment=toy tolerance=inf | tolerance: expected a finite number
report figure=5 | figure: expected experiment=NAME next to it
report experiment=toy figure=x figure_width=1 | expected 0, or a value of at least 1.5
report experiment=toy figure=x figure_height=tall | figure_height: expected a number, found 'tall'
verify experiment=toy sample=3,4 | sample: expected one value
report figures=gif experiment=toy | expected one of png, pdf, svg
experiment=toy outputs=~nobody_of_this_name/x | hess-run: outputs: expected a home folder
-m experiment=toy seed=range(0,1000) width=range(1,1001) | at most 100,000 jobs, found 1,000,000
-m experiment=toy seed=range(0,inf) | seed: expected a sweep of at most 100,000 jobs
experiment=toy jobs=1000000 | jobs: expected a value above zero and of at most 1024, found 1000000
experiment=t\u043ey | experiment='t\\u043ey': no such choice (did you mean toy?)
experiment=toy width=1 seed=\u201c42\u201d | seed: expected a whole number, found
experiment=toy width=1 scale=\uff11 | experiment.scale: expected a number, found
""")
MISTAKES += [
    (["experiment=toy\u00a0"], "experiment='toy\\xa0': no such choice (did you mean toy?)"),
    (["experiment=toy", "samples=" + "x" * 3000], "characters)"),
    (["experiment=toy", "outputs=" + "y" * 300], "outputs"),
    (["experiment=toy", "seed= 42 "], "seed: expected a number of digits alone, found ' 42 '"),
    (["why", "9" * 400], "why: expected a file of a report"),
    (["why", "figure.png:" + "9" * 400], "why: expected a file of a report"),
    (["list", "x" * 10_000], "list: expected a part of an experiment's name"),
    (["data", "fetch", "x" * 10_000], "data fetch: expected one of cifar10, cifar100"),
    (["audit", "x" * 10_000], "audit"),
    (["list", "a\x1b[31m"], r"found a\x1b[31m"),
    (["x" * 10_000], "see hess-run --help"),
]


def test_a_mistake_is_one_line(command):
    for argv, expected in MISTAKES:
        err = command.refusal(*argv)
        assert expected in err and len(err) < 400, (argv, err)
        assert list(command.folder.iterdir()) == [], argv


def test_no_message_obeys_or_repeats_the_users_words(command):
    odd = "\x1b[2J\x07" + "y" * 5000
    for words in (
        [odd], [f"{odd}=1"], [f"experiment={odd}"], ["experiment=toy", f"{odd}=1"],
        ["experiment=toy", f"shape={odd}"], ["experiment=toy", f"dataset={odd}"],
        ["experiment=toy", f"profile={odd}"], ["experiment=toy", f"device={odd}"],
        ["report", "experiment=toy", f"figure={odd}"], ["report", f"{odd}=1"], ["list", odd],
        ["list", "toy", odd],
        ["why", odd], ["publish", odd], ["data", odd],
        ["store", odd], ["store", "check", f"repair={odd}"],
        ["data", "verify", odd], [f"--{odd}"],
        ["diagnose", f"target={odd}"], ["diagnose", f"{odd}=1"], ["--config-dir", odd, "list"],
        ["experiment=toy", f"hydra.{odd}=1"], ["experiment=toy", f"~{odd}"],
        ["diagnose", "target=a.b:c", f"steps={odd}"],
    ):  # fmt: skip
        status, out, err = command(*words)
        said = out + err
        assert status == 2 and "\x1b" not in said and "\x07" not in said, words
        assert len(said) < 1000 and said.count("\n") == 1, (words, said)


def test_an_output_folder_that_is_a_link_to_itself_is_refused(command):
    (command.folder / "loop").symlink_to("loop")
    assert "loop is a link that leads nowhere" in command.refusal("experiment=toy", "outputs=loop")
    err = command("list", "outputs=loop")[2]
    assert "fault of this program" not in err and "Traceback" not in err, err


def test_every_target_in_a_configuration_is_found():
    inner = {"_target_": "b", "more": [{"_target_": "c"}, "text", 3]}
    assert list(_targets({"_target_": "a", "items": [inner]})) == ["a", "b", "c"]


def test_names_can_be_swept_by_a_pattern():
    found = expand(parse(["-m", "experiment=glob(hsr_*)", "seed=1,2"]).arguments())
    names = [name for name in experiment_names() if name.startswith("hsr_")]
    assert found == [[f"experiment={name}", f"seed={seed}"] for name in names for seed in (1, 2)]
    (options_behind,) = expand(parse(["experiment=ws_bound", "seed=3", "-m"]).arguments())
    assert options_behind == ["experiment=ws_bound", "seed=3"]


def test_jobs_that_differ_in_the_seed_are_composed_once(monkeypatch, tmp_path):
    composed = []
    whole = compose.with_hydra
    monkeypatch.setattr(compose, "with_hydra", lambda words: composed.append(words) or whole(words))
    forget()
    words = ["-m", "experiment=ws_bound", "seed=range(0,30)", f"outputs={tmp_path}/a"]
    jobs = build_jobs(parse(words).arguments())
    assert [job.seed for job in jobs] == list(range(30)) and len(composed) == 1
    assert len({id(job.experiment) for job in jobs}) == 1
    lines = cell_lines(planned(jobs))
    cells = len(jobs[0].experiment.cells())
    assert len(lines) == 30 * (cells + 1) + 1 and lines[-1].startswith(
        f"{30 * cells} cells: 0 stored"
    )


def test_a_value_that_follows_the_seed_is_composed_for_each():
    words = ["-m", "experiment=ws_bound", "seed=3,5", "experiment.error_points=${seed}"]
    jobs = build_jobs(parse(words).arguments())
    assert [job.experiment.error_points for job in jobs] == [3, 5]


def test_an_experiment_of_ones_own_builds_on_one_of_the_projects(tmp_path, monkeypatch):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "short.yaml").write_text(
        "# @package _global_\ndefaults:\n  - ws_bound\n  - _self_\nexperiment:\n  hidden: [3]\n"
    )
    try:
        files.add(tmp_path)
        (job,) = build_jobs(parse(["experiment=short"]).arguments())
        assert job.experiment == preview("short") and job.experiment.hidden == [3]
        (tmp_path / "experiment" / "ws_bound.yaml").write_text("# @package _global_\n")
        files.forget_added()
        with refusal("the project has a experiment of this name", SettingError):
            files.add(tmp_path)
    finally:
        files.forget_added()


def test_listing_imports_nothing_that_was_not_allowed(command, toy_conf, monkeypatch):
    path = toy_conf / "experiment" / "toy.yaml"
    path.write_text(path.read_text().replace("tests.run.toy.Toy", "evil_module.Thing"))
    (command.folder / "evil_module.py").write_text('open("imported", "w")\n')
    monkeypatch.syspath_prepend(command.folder)
    for argv in (["list"], ["list", "experiment=toy"], ["experiment=toy"], ["report"]):
        status, out, err = command(*argv)
        assert "HESS_MODULES=evil_module" in out + err and "Traceback" not in err
        assert status == (0 if argv == ["list"] else 2)
    assert not (command.folder / "imported").exists()


def test_a_sweep_over_output_folders_leaves_no_folder_behind_that_is_nobodys(command):
    command.output("-m", "experiment=toy", "width=1", "shape=round", "outputs=a,b")
    assert sorted(path.name for path in command.folder.iterdir()) == ["a", "b"]
    command.output("experiment=toy", "width=1", "shape=round")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_while_settings_are_read_is_one_line(number, toy_conf, tmp_path):
    code = (
        "import os, sys, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # background
        "from runner import cli\nfrom runner.run.config import compose\n"
        f"whole = compose.with_hydra\ndef stop(words):\n    os.kill(os.getpid(), {int(number)})\n"
        "    return whole(words)\ncompose.with_hydra = stop\n"
        "sys.argv = ['hess-run', 'experiment=toy']\ncli.main()\n"
    )
    words, env = [sys.executable, "-c", code], command_environment()
    done = subprocess.run(words, cwd=tmp_path, env=env, text=True, capture_output=True, timeout=60)
    assert done.returncode == 130 and done.stderr.count("\n") == 1, done.stderr
    assert "interrupted" in done.stderr and not (tmp_path / "outputs").exists()


def test_windows_is_refused_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match="2"):
        cli.main(["list"])
    assert "WSL 2" in capsys.readouterr().err
