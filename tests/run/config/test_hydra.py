"""Overrides are in Hydra's grammar, and jobs are composed by Hydra, in its applications, too."""

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra

from runner.contract import SettingError
from runner.run import launch
from runner.run.config import compose, files
from runner.run.config.jobs import build_job
from runner.run.config.overrides import read
from tests.run.conftest import forget


def test_a_job_is_composed_inside_the_application_of_a_launcher():
    alone = build_job(["experiment=ws_bound", "experiment.hidden=3"]).experiment
    with hydra.initialize_config_dir(str(files.CONF), **compose.defaults_of_hydra()):
        application = GlobalHydra.instance().hydra
        forget()
        assert build_job(["experiment=ws_bound", "experiment.hidden=3"]).experiment == alone
        assert GlobalHydra.instance().hydra is application
    assert not GlobalHydra.instance().is_initialized()


@pytest.mark.parametrize(
    "text, key, sweep, size",
    [
        ("a.b=3", "a.b", False, 1),
        ("++a=[1,2]", "a", False, 1),
        ("a=1,2,3", "a", True, 3),
        ("a=range(0,10,3)", "a", True, 4),
        ("a=range(0,1000000000)", "a", True, 10**9),
        ("a=choice(x,y)", "a", True, 2),
        ("experiment=glob(ws_*)", "experiment", True, 1),
    ],
)
def test_overrides_are_read_one_by_one(text, key, sweep, size):
    word = read(text)
    assert (word.key, word.sweep, word.size) == (key, sweep, size)
    if size < 100:
        assert len(word.values()) == size


@pytest.mark.parametrize("text", ["a=b=c", "a=[", "a=1,", "a=interval(0,1)", "a=" + "{" * 500])
def test_what_the_grammar_refuses_is_one_line_with_the_key(text):
    with pytest.raises(SettingError) as error:
        read(text)
    line = str(error.value)
    assert "\n" not in line and len(line) < 300 and line.startswith(text.partition("=")[0])
    assert "<EOF>" not in line and "See https" not in line


def test_a_launcher_that_is_not_installed_names_its_package():
    assert "pip install hydra-ray-launcher" in launch.missing_launcher("ray")
    assert "pip install hydra-submitit-launcher" in launch.missing_launcher("submitit_slurm")
    assert "no such launcher" in launch.missing_launcher("nope")
