"""A copy of conf/ with the toy experiment in it, and the command line as a process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runner.run.config import compose, experiment_file, files

ROOT = Path(__file__).resolve().parents[2]
TOY = """\
# @package _global_
defaults:
  - override /dataset: gaussian
dataset:
  train: 8
experiment:
  _target_: tests.run.toy.Toy
  width: [1, 2, 3]
  shape: [round, square]
  samples: 20
profiles:
  quick:
    - experiment.width=[1]
    - experiment.samples=5
"""


@pytest.fixture
def toy_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of a configuration that knows `experiment=toy`, in use here and in processes."""
    conf = tmp_path / "conf"
    shutil.copytree(ROOT / "conf", conf)
    for path in (conf / "experiment").glob("*.yaml"):
        path.unlink()
    (conf / "experiment" / "toy.yaml").write_text(TOY)
    monkeypatch.setenv("HESS_CONF", str(conf))
    monkeypatch.setenv("HESS_MODULES", "tests")
    monkeypatch.setattr(files, "CONF", conf)
    forget()
    yield conf
    forget()
    files.forget_added()


def forget() -> None:
    """Files are read once a process; tests change them."""
    names = (experiment_file.experiment_file, experiment_file.experiment_class, compose.preview, compose._composition)
    for read in (files.load, *names):
        read.cache_clear()


@pytest.fixture
def hess_run(toy_conf: Path, tmp_path: Path):
    """Call the command in a process of its own, in an empty working folder; returns the finished process."""
    work = tmp_path / "work"
    work.mkdir()

    def call(*arguments: str, start: bool = False, **environment: str):
        command = [sys.executable, "-m", "runner.cli", *arguments]
        env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        if start:
            pipe = subprocess.PIPE
            return subprocess.Popen(
                command,
                cwd=work,
                env=env,
                text=True,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,
                # A test run in the background inherits an ignored Ctrl-C, which a user's terminal never does.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )
        return subprocess.run(command, cwd=work, env=env, text=True, capture_output=True, timeout=120)

    call.folder = work  # type: ignore[attr-defined]
    return call
