"""Our composition of conf/ and Hydra's give the same configuration, and overrides are in Hydra's
grammar."""

import hydra
import pytest
from omegaconf import OmegaConf

from runner.contract import SettingError
from runner.run import launch
from runner.run.config import compose, experiment_names, files
from runner.run.config.overrides import read

WORDS = ("seed=7", "profile=quick")


@pytest.mark.parametrize("name", experiment_names())
def test_both_give_the_same_containers(name):
    extra = compose._profile_words(name, "quick")
    parsed = [read(word) for word in (*extra, *WORDS)]
    ours = compose._resolved(compose._merged(name, compose._chosen(name, parsed), parsed))
    with hydra.initialize_config_dir(str(files.CONF), **launch.defaults_of_hydra()):
        theirs = hydra.compose("config", overrides=[f"experiment={name}", *extra, *WORDS])
    theirs = OmegaConf.to_container(theirs, resolve=True)
    assert theirs.pop("profile") == {"name": "quick"} and theirs["seed"] == 7
    theirs.pop("profiles", None)
    assert {key: value for key, value in ours.items() if value is not None} == theirs


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
