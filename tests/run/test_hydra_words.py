"""The messages of Hydra and OmegaConf that are read, as the installed releases word them."""

from __future__ import annotations

import pytest

from runner.contract import SettingError
from runner.run import composing, hydra_words


def said(*words: str) -> str:
    """What Hydra says when these overrides are composed."""
    import hydra

    with composing.session(), pytest.raises(Exception) as error:
        hydra.compose("config", overrides=list(words), return_hydra_config=True)
    return str(error.value)


def test_what_is_read_is_what_hydra_says(toy_conf):
    assert hydra_words.missing_choice(said("experiment=toy", "dataset=nope")) == ("dataset", "nope")
    assert hydra_words.missing_choice(said("experiment=nope")) == ("experiment", "nope")
    assert hydra_words.missing_choice(said("experiment=toy", "hydra/launcher=nope")) == ("hydra/launcher", "nope")
    assert hydra_words.lacks(said("seed=1"), "experiment")
    assert hydra_words.unknown_key(said("experiment=toy", "nokey=1")) == "nokey"
    from omegaconf import OmegaConf

    with pytest.raises(Exception) as error:
        OmegaConf.to_container(OmegaConf.create({"a": {"b": "${nokey}"}}), resolve=True)
    assert hydra_words.full_key(str(error.value)) == "a.b"


@pytest.mark.parametrize(
    ("text", "key", "sweep", "size"),
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
    word = hydra_words.read(text)
    assert (word.key, word.sweep, word.size) == (key, sweep, size)
    if size < 100:
        assert len(word.values()) == size


@pytest.mark.parametrize("text", ["a=b=c", "a=[", "a=1,", "a=interval(0,1)", "a=" + "{" * 500])
def test_what_the_grammar_refuses_is_one_line_with_the_key(text):
    with pytest.raises(SettingError) as error:
        hydra_words.read(text)
    line = str(error.value)
    assert "\n" not in line and len(line) < 300 and line.startswith(text.partition("=")[0])
    assert "<EOF>" not in line and "See https" not in line


def test_a_launcher_that_is_not_installed_names_the_extra():
    assert "pip install 'hess-run[ray]'" in hydra_words.missing_launcher("ray")
    assert "pip install 'hess-run[slurm]'" in hydra_words.missing_launcher("submitit_slurm")
    assert "no such launcher" in hydra_words.missing_launcher("nope")
