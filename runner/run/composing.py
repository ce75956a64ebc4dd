"""Hydra's composition of one job: the profile, the experiment that it describes, and one line for every mistake."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from runner.contract import GROUPS, Experiment, SettingError
from runner.run import hydra_words, reading, sources
from runner.run.command_line import qualified
from runner.run.sources import KNOWN_KEYS, TOP_LEVEL, nearest, short, was_interrupted
from runner.run.targets import may_import

REPORTER = "runner.cli.ReportAfterRun"


@dataclasses.dataclass(frozen=True)
class Composition:
    """One composed configuration. words: the overrides with those of the profile; run: settings of the run, raw;
    repeats: whether other settings of the run leave the experiment as it is; notice: what a user should know."""

    name: str
    profile: str
    experiment: Experiment
    words: tuple[str, ...]
    run: Mapping[str, Any]
    repeats: bool
    notice: str = ""


@contextmanager
def session() -> Iterator[None]:
    """Hydra's composition on the configuration folders, inside or outside a Hydra application."""
    from hydra._internal.hydra import Hydra
    from hydra._internal.utils import create_config_search_path
    from hydra.core.config_search_path import SearchPathQuery
    from hydra.core.global_hydra import GlobalHydra

    if GlobalHydra.instance().is_initialized():
        yield
        return
    if not (sources.CONF / "config.yaml").is_file():
        raise SettingError(f"HESS_CONF: expected a whole configuration folder, found no config.yaml in {sources.CONF}")
    path = create_config_search_path(str(sources.CONF))
    for folder in sources.added():
        path.prepend(provider="command-line", path=f"file://{folder}", anchor=SearchPathQuery(provider="schema"))
    Hydra.create_main_hydra2(task_name="hess-run", config_search_path=path)
    try:
        yield
    finally:
        GlobalHydra.instance().clear()


def compose(words: Sequence[str]) -> Any:
    """The configuration of one job. Raises SettingError with one line for whatever Hydra refuses."""
    import hydra

    try:
        with session():
            return hydra.compose("config", overrides=list(words), return_hydra_config=True)
    except SettingError:
        raise
    except Exception as error:  # Hydra, OmegaConf and YAML raise many kinds; all of them are a mistake in what was read
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        raise SettingError(explain(error, words)) from error


def explain(error: Exception, words: Sequence[str]) -> str:
    """One line for what Hydra says in many: what was found, what is known, what is nearest."""
    text = str(error)
    choice = hydra_words.missing_choice(text)
    if choice and choice[0] in sources.OPTIONS:
        return sources.no_such_choice(*choice)
    if choice and choice[0] == "hydra/launcher":
        return hydra_words.missing_launcher(choice[1])
    if hydra_words.lacks(text, "experiment"):
        keys = [word.split("=", 1)[0].lstrip("+~") for word in words]
        wrong = [key for key in keys if key.split(".")[0] not in KNOWN_KEYS]
        if wrong:
            return f"{short(wrong[0])} is not a setting{nearest(wrong[0], KNOWN_KEYS)}; expected experiment=NAME"
        return f"expected experiment=NAME, found none; known: {', '.join(reading.experiment_names())}"
    key = hydra_words.unknown_key(text)
    if key:
        return f"{short(key)} is not a setting{nearest(key, reading.known_keys(_named(words)))}"
    override = hydra_words.unfit_override(text)
    if override:
        return f"{short(override)}: the setting cannot take this kind of value"
    line = short(hydra_words.first_line(text) or type(error).__name__, 160)
    return f"{hydra_words.full_key(text) or _culprit(words)}: {line}"


def _named(words: Sequence[str]) -> str | None:
    names = [word.split("=", 1)[1] for word in words if word.startswith("experiment=")]
    return names[-1] if names else None


def _culprit(words: Sequence[str]) -> str:
    """The key of the first override with which alone the experiment cannot be composed."""
    import hydra

    name = _named(words)
    for word in words:
        if not word.startswith("experiment="):
            try:
                with session():
                    hydra.compose("config", overrides=[f"experiment={name}", word], return_hydra_config=True)
            except Exception:
                return short(word.split("=", 1)[0].lstrip("+~"))
    return sources.shown(sources.find("experiment", name)) if name in reading.experiment_names() else "command line"


def composition(words: Sequence[str]) -> Composition:
    """The experiment that the overrides of one job describe."""
    return _composition(tuple(words), sources.CONF, sources.added())


@lru_cache(maxsize=64)
def _composition(words: tuple[str, ...], *_folders: object) -> Composition:
    cfg = compose(words)
    name, profile = str(cfg.hydra.runtime.choices.experiment), _profile(cfg)
    reading.experiment_file(name)
    extra = _profile_words(cfg, name, profile)
    given = {word.split("=", 1)[0].lstrip("+~") for word in words}
    added = [word for word in extra if word.split("=", 1)[0].lstrip("+~") not in given]
    if added:
        words = (*added, *words)
        cfg = compose(words)
    found = _built(cfg, name, profile, words, given)
    missing = getattr(getattr(found.experiment, "dataset", None), "missing", None)
    if profile == "quick" and missing is not None and missing():
        return _stand_in(found, given)
    return found


def _stand_in(found: Composition, given: set[str]) -> Composition:
    """The quick profile never asks for a download: the surrogate with as many classes takes the data set's place."""
    data = found.experiment.dataset  # type: ignore[attr-defined]
    kept = [word for word in found.words if word.split("=", 1)[0].lstrip("+") != "dataset"]
    words = (*kept, "dataset=surrogate", f"dataset.classes={data.classes}")
    surrogate = _built(compose(words), found.name, found.profile, words, given)
    notice = f"dataset={data.kind} is not here; profile=quick takes the surrogate with {data.classes} classes instead"
    return dataclasses.replace(surrogate, notice=notice)


def _built(cfg: Any, name: str, profile: str, words: tuple[str, ...], given: set[str]) -> Composition:
    from omegaconf import OmegaConf

    _check_keys(cfg, name)
    _check_hydra(cfg)
    whole = OmegaConf.to_container(cfg, resolve=False)
    assert isinstance(whole, dict)
    raw = {key: whole.get(key) for key in (*GROUPS, "experiment")}
    values = {key: _plain(cfg, key) for key in (*GROUPS, "experiment")}
    chosen = {group: cfg.hydra.runtime.choices.get(group) for group in GROUPS}
    experiment = reading.build_experiment(name, chosen, values, given)
    run = {key: _plain(cfg, key) for key in TOP_LEVEL}
    own = re.findall(r"\$\{([^}]*)", str(raw))
    repeats = all(re.fullmatch(rf"({'|'.join(GROUPS)}|experiment)\.[\w.]+", reference) for reference in own)
    return Composition(name, profile, experiment, words, run, repeats)


def _plain(cfg: Any, key: str) -> Any:
    """A value of the configuration without interpolations. Raises SettingError, which names the key."""
    from omegaconf import DictConfig, ListConfig, OmegaConf

    try:
        node = cfg.get(key)
        return OmegaConf.to_container(node, resolve=True) if isinstance(node, DictConfig | ListConfig) else node
    except Exception as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        text = str(error)
        raise SettingError(
            f"{hydra_words.full_key(text) or key}: {short(hydra_words.first_line(text), 160)}"
        ) from error


def _profile(cfg: Any) -> str:
    node = _plain(cfg, "profile")
    known = sources.choices("profile")
    if not isinstance(node, Mapping) or not isinstance(node.get("name"), str):
        raise SettingError(f"profile: expected one of {', '.join(known)}, found {short(node)}")
    if node["name"] != cfg.hydra.runtime.choices.get("profile"):
        raise SettingError(f"conf/profile: expected the file's own name as name, found {short(node['name'])}")
    return str(node["name"])


def _profile_words(cfg: Any, name: str, profile: str) -> list[str]:
    """The overrides that an experiment's file lists for a profile."""
    where, listed = sources.shown(sources.find("experiment", name)), _plain(cfg, "profiles")
    if not isinstance(listed, Mapping):
        raise SettingError(f"{where}: expected keys and values under profiles, found {short(listed)}")
    if profile != "paper" and profile not in listed:
        raise SettingError(f"profile={profile}: {where} has no profiles.{profile}")
    words = listed.get(profile, [])
    if not isinstance(words, list) or not all(isinstance(word, str) and "=" in word for word in words):
        raise SettingError(f"{where}: profiles.{profile}: expected a list of key=value, found {short(words)}")
    for word in words:
        hydra_words.read(word)
    return qualified([f"experiment={name}", *words])[1:]


def _check_keys(cfg: Any, name: str) -> None:
    for key in map(str, cfg):
        if key not in (*KNOWN_KEYS, "profiles", "hydra"):
            raise SettingError(f"command line: {short(key)} is not a setting{nearest(key, KNOWN_KEYS)}")


def _check_hydra(cfg: Any) -> None:
    """Refuse code that a file brings in through Hydra's own section: callbacks, launchers, sweepers, logging."""
    from omegaconf import OmegaConf

    section = OmegaConf.to_container(cfg.hydra, resolve=False)
    assert isinstance(section, dict)
    report = {"report": {"_target_": REPORTER}}
    if section.get("callbacks") != report or cfg.hydra.job.chdir or section["run"]["dir"] != ".":
        raise SettingError(
            "hydra: expected callbacks, run.dir and job.chdir as conf/config.yaml has them, found others"
        )
    for group in ("job_logging", "hydra_logging"):
        if cfg.hydra.runtime.choices.get(f"hydra/{group}") != "disabled" or "handlers" in (section[group] or {}):
            raise SettingError(f"hydra.{group}: expected disabled: every job keeps a log of its own")
    for group in ("launcher", "sweeper"):
        target = str((section.get(group) or {}).get("_target_"))
        if not (target.startswith(("hydra._internal.core_plugins.", "hydra_plugins.")) or may_import(target)):
            raise SettingError(f"hydra.{group}: _target_ {short(target)} is no plugin of Hydra and was not imported")
