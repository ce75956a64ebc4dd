"""Our composition of conf/ and Hydra's give the same configuration."""

import hydra
import pytest
from omegaconf import OmegaConf

from runner.run import command
from runner.run.config import compose, experiment_names, files
from runner.run.config.overrides import read

WORDS = ("seed=7", "profile=quick")


@pytest.mark.parametrize("name", experiment_names())
def test_both_give_the_same_containers(name):
    extra = compose._profile_words(name, "quick")
    parsed = [read(word) for word in (*extra, *WORDS)]
    ours = compose._resolved(compose._merged(name, compose._chosen(name, parsed), parsed))
    with hydra.initialize_config_dir(str(files.CONF), **command._defaults_of_hydra()):
        theirs = hydra.compose("config", overrides=[f"experiment={name}", *extra, *WORDS])
    theirs = OmegaConf.to_container(theirs, resolve=True)
    assert theirs.pop("profile") == {"name": "quick"} and theirs["seed"] == 7
    theirs.pop("profiles", None)
    assert {key: value for key, value in ours.items() if value is not None} == theirs
