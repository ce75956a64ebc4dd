"""From a command line to typed jobs: Hydra composition, the profile, and one-line errors for every mistake.

`parse` splits the command line, `expand` unrolls a sweep, `build_job` composes one job. Everything is checked before
Hydra starts a run, so a mistake leaves nothing behind.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner.contract.experiment import Experiment
from runner.contract.schema import GROUPS, SettingError, non_negative, positive
from runner.store.job import Job

CONF = Path(os.environ.get("HESS_CONF") or Path(__file__).resolve().parents[2] / "conf")
"""The configuration folder; a copy of it with experiments of your own is used with HESS_CONF=FOLDER."""
TOP_LEVEL = ("seed", "threads", "device", "outputs", "jobs", "force")
NOT_REPEATED = ("experiment", "seed", "profile", "force", "jobs")  # in the commands that reports print
KNOWN_KEYS = (*TOP_LEVEL, *GROUPS, "profile", "profiles", "experiment", "hydra")


@dataclasses.dataclass(frozen=True)
class Arguments:
    """A command line: Hydra overrides, and whether it is a multirun."""

    overrides: tuple[str, ...]
    multirun: bool

    @property
    def argv(self) -> list[str]:
        return [*(["-m"] if self.multirun else []), *self.overrides]


def experiment_names() -> list[str]:
    """Every experiment that has a YAML file."""
    return sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))


def parse(arguments: Sequence[str]) -> Arguments:
    """Split a command line; `key=value` of an experiment's own field becomes `experiment.key=value`."""
    overrides, multirun = [], False
    for argument in arguments:
        if argument in ("-m", "--multirun"):
            multirun = True
        elif argument.startswith("-"):
            raise SettingError(f"{argument} is not an option of hess-run; options are -m and --help")
        else:
            overrides.append(argument)
    for override in overrides:
        if "=" not in override and not override.startswith("~"):
            near = get_close_matches(override, ["list", "plan", "report", "data", *experiment_names()], n=1)
            hint = f"did you mean {near[0]}?" if near else "see hess-run --help"
            raise SettingError(f"expected key=value, found {override!r}; {hint}")
    names = [value for o in overrides if o.startswith("experiment=") for value in o.split("=", 1)[1].split(",")]
    return Arguments(tuple(_qualify(o, names) for o in overrides), multirun)


def _qualify(override: str, names: Sequence[str]) -> str:
    key, _, value = override.partition("=")
    own = key.removeprefix("experiment.")
    if re.fullmatch(r"[A-Za-z_]\w*", own) and (own != key or key not in KNOWN_KEYS):
        for name in names:
            if name in experiment_names() and own in experiment_fields(name):
                return f"++experiment.{own}={value}"  # also a field that the YAML file leaves at its default
    return override


@cache
def experiment_class(name: str) -> type[Experiment]:
    """The class that conf/experiment/<name>.yaml names in `_target_`."""
    target = OmegaConf.select(_load(CONF / "experiment" / f"{name}.yaml"), "experiment._target_")
    where = f"conf/experiment/{name}.yaml"
    if not isinstance(target, str) or "." not in target:
        raise SettingError(f"{where}: expected experiment._target_ as module.Class, found {target}")
    module, _, class_name = target.rpartition(".")
    try:
        found = getattr(import_module(module), class_name)
    except (ImportError, AttributeError) as error:
        raise SettingError(f"{where}: _target_ {target} cannot be loaded: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Experiment)):
        raise SettingError(f"{where}: _target_ {target} is not an Experiment")
    return found


@cache
def _load(path: Path) -> DictConfig:
    """A YAML file as a mapping; read once, never changed."""
    from yaml import YAMLError

    try:
        loaded = OmegaConf.load(path)
    except (YAMLError, OSError) as error:
        raise SettingError(f"{path}: cannot be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, DictConfig):
        raise SettingError(f"{path}: expected keys and values")
    return loaded


def experiment_fields(name: str) -> dict[str, dataclasses.Field]:
    """Fields of an experiment that are set under `experiment:`, by name."""
    return {f.name: f for f in dataclasses.fields(experiment_class(name)) if f.name not in GROUPS}


@contextmanager
def _hydra() -> Iterator[None]:
    """Hydra's composition on conf/, inside or outside a Hydra application."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    if GlobalHydra.instance().is_initialized():
        yield
    else:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            yield


def _compose(overrides: Sequence[str]) -> DictConfig:
    from hydra import compose
    from hydra.errors import HydraException

    try:
        with _hydra():
            return compose("config", overrides=list(overrides), return_hydra_config=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise SettingError(_explain(error, overrides)) from error


def _explain(error: Exception, overrides: Sequence[str]) -> str:
    """One line for what Hydra says in many: what was found, what is known, what is nearest."""
    text = str(error)
    choice = re.search(r"(?:Could not find|Could not load) '(\w+)/([^']+)'", text)
    if choice and choice[1] in (*GROUPS, "experiment", "profile"):
        known = sorted(path.stem for path in (CONF / choice[1]).glob("*.yaml"))
        return f"{choice[1]}={choice[2]}: no such choice{_nearest(choice[2], known)}; known: {', '.join(known)}"
    if "must specify 'experiment'" in text:
        wrong = [o.split("=", 1)[0] for o in overrides if o.split("=", 1)[0] not in KNOWN_KEYS]
        if wrong:
            return f"{wrong[0]} is not a setting{_nearest(wrong[0], KNOWN_KEYS)}; expected experiment=NAME"
        return f"expected experiment=NAME, found none; known: {', '.join(experiment_names())}"
    key = re.search(r"Could not override '([^']+)'", text)
    if key:
        known = known_keys(overrides)
        return f"{key[1]} is not a setting{_nearest(key[1], known)}"
    value = re.match(r"Error merging override (.+)", text)
    if value:
        return f"{value[1].lstrip('+')}: the setting cannot take this kind of value"
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    detail = re.search(r"full_key: (\S+)", text)
    return f"{detail[1]}: {first}" if detail else first


def _nearest(found: str, known: Sequence[str]) -> str:
    near = get_close_matches(found, known, n=1, cutoff=0.5)
    if not near:  # the last part may be right and the path wrong, or the path left out
        tails = {k.rpartition(".")[2]: k for k in reversed(known)}  # the experiment's own settings come first
        near = [tails[t] for t in get_close_matches(found.rpartition(".")[2], list(tails), n=1, cutoff=0.6)]
    return f" (did you mean {near[0]}?)" if near else ""


def known_keys(overrides: Sequence[str]) -> list[str]:
    """Every key that can be set for the experiment named in the overrides."""
    names = [o.split("=", 1)[1] for o in overrides if o.startswith("experiment=")]
    keys = [*TOP_LEVEL, *GROUPS, "profile", "experiment"]
    if names and names[-1] in experiment_names():
        experiment = preview(names[-1])
        keys += [f"experiment.{f}" for f in experiment_fields(names[-1])]
        groups = {group: getattr(experiment, group) for group in GROUPS if hasattr(experiment, group)}
        keys += [f"{group}.{f.name}" for group, value in groups.items() for f in dataclasses.fields(value)]
    return keys


def expand(arguments: Arguments) -> list[list[str]]:
    """The overrides of every job: one list for a run, the product of all sweeps for a multirun."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_overrides(list(arguments.overrides))
        swept = [o for o in parsed if o.is_sweep_override()]
        if swept and not arguments.multirun:
            raise SettingError(f"{swept[0].input_line}: several values need -m (multirun) in front")
        if not arguments.multirun:
            return [list(arguments.overrides)]
        plain = [o for o in parsed if not (o.key_or_group or "").startswith("hydra")]
        batches = BasicSweeper.split_arguments(plain, max_batch_size=None)
    except HydraException as error:
        text = " ".join(str(error).partition("See https")[0].split())
        raise SettingError(f"cannot read the command line: {text}; quote values with brackets or commas") from error
    return [list(job) for batch in batches for job in batch]


def build_job(overrides: Sequence[str]) -> Job:
    """Compose, check and type one job. Raises SettingError with one line for any mistake."""
    cfg = _compose(overrides)
    name = str(cfg.hydra.runtime.choices.experiment)
    profile = _profile_name(cfg)
    extra = cfg.profiles.get(profile, []) if isinstance(cfg.profiles, DictConfig) else []
    if profile != "paper" and profile not in cfg.profiles:
        raise SettingError(f"profile={profile}: conf/experiment/{name}.yaml has no profiles.{profile}")
    if extra:
        given = {o.split("=", 1)[0].lstrip("+~") for o in overrides}
        added = [str(o) for o in extra if str(o).split("=", 1)[0] not in given]
        cfg = _compose([*added, *overrides])
    _check_keys(cfg, name)
    experiment = build_experiment(cfg, name)
    return Job(
        name=name,
        experiment=experiment,
        profile=profile,
        overrides=tuple(o.lstrip("+") for o in overrides if o.split("=", 1)[0] not in NOT_REPEATED),
        **_run_settings(cfg),
    )


def _profile_name(cfg: DictConfig) -> str:
    if not isinstance(cfg.profile, DictConfig):
        raise SettingError(f"profile={cfg.profile}: expected paper or quick")
    return str(cfg.profile.name)


def _check_keys(cfg: DictConfig, name: str) -> None:
    for key in map(str, cfg):
        if key not in KNOWN_KEYS:
            own = _load(CONF / "experiment" / f"{name}.yaml")
            where = f"conf/experiment/{name}.yaml" if key in own else "command line"
            raise SettingError(f"{where}: {key} is not a setting{_nearest(key, KNOWN_KEYS)}")


def _run_settings(cfg: DictConfig) -> dict[str, Any]:
    @dataclasses.dataclass
    class Run:
        seed: int = 42
        threads: int = 1
        device: str = "cpu"
        outputs: str = "outputs"
        jobs: int = 1
        force: bool = False

    run = _typed(Run, {key: cfg[key] for key in TOP_LEVEL}, "")
    positive("threads", run["threads"])
    positive("jobs", run["jobs"])
    non_negative("seed", run["seed"])
    if run["device"] != "cpu" and not re.fullmatch(r"(cuda|mps)(:\d+)?", run["device"]):
        raise SettingError(f"device: expected cpu, cuda, cuda:N or mps, found {run['device']}")
    return {**run, "outputs": Path(run["outputs"]).expanduser()}


def build_experiment(cfg: DictConfig, name: str) -> Experiment:
    """The experiment of a composed configuration, every field typed and checked."""
    cls = experiment_class(name)
    own = experiment_fields(name)
    node = OmegaConf.to_container(cfg.experiment, resolve=True)
    if not isinstance(node, dict):
        raise SettingError(f"conf/experiment/{name}.yaml: expected settings under experiment:")
    node.pop("_target_", None)
    for key, field in own.items():
        if field.metadata.get("grid") and key in node and not isinstance(node[key], list):
            node[key] = [node[key]]
    schema = dataclasses.make_dataclass(
        f"{cls.__name__}Settings", [(f, _type_of(cls, f), _default(own[f])) for f in own], kw_only=True
    )
    values = _typed(schema, node, "experiment", f"conf/experiment/{name}.yaml")
    groups = {f.name for f in dataclasses.fields(cls)} & set(GROUPS)
    for group in GROUPS:
        if group in groups:
            values[group] = _group(cfg, group, name)
        elif cfg.get(group) is not None:
            raise SettingError(f"{group}: experiment {name} does not use this group; leave it out")
    return cls(**values)


def _group(cfg: DictConfig, group: str, name: str) -> Any:
    node = cfg.get(group)
    if not isinstance(node, DictConfig):
        options = ", ".join(sorted(p.stem for p in (CONF / group).glob("*.yaml")))
        raise SettingError(f"{group}: expected a choice for experiment {name}, found {node}; known: {options}")
    kind = str(node.get("kind"))
    file = f"conf/{group}/{cfg.hydra.runtime.choices[group]}.yaml"
    if kind not in GROUPS[group]:
        raise SettingError(f"{file}: kind {kind} is not known{_nearest(kind, list(GROUPS[group]))}")
    cls = GROUPS[group][kind]
    return cls(**_typed(cls, OmegaConf.to_container(node, resolve=True), group, file))


def _type_of(cls: type, name: str) -> Any:
    from typing import get_type_hints

    return get_type_hints(cls)[name]


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=field.default_factory)
    return dataclasses.field() if field.default is dataclasses.MISSING else dataclasses.field(default=field.default)


def _typed(cls: type, values: Any, prefix: str, file: str = "") -> dict[str, Any]:
    """`values` checked against the fields of `cls`: unknown keys, wrong types and missing values are SettingErrors."""
    known = [f.name for f in dataclasses.fields(cls)]
    dot = f"{prefix}." if prefix else ""
    for key in map(str, values):
        if key not in known:
            where = f"{file}: " if file else ""
            raise SettingError(f"{where}{dot}{key} is not a setting{_nearest(f'{dot}{key}', [dot + k for k in known])}")
    base = OmegaConf.structured(cls)
    try:
        base = OmegaConf.merge(base, values)
    except OmegaConfBaseException:
        _blame(cls, base, values, dot)
        raise
    result = OmegaConf.to_container(base, resolve=True)
    assert isinstance(result, dict)
    typed = {str(key): value for key, value in result.items()}
    for name, value in typed.items():
        if value == "???":
            raise SettingError(f"{file}: {dot}{name} has no value; set it there or on the command line")
    return typed


def _blame(cls: type, base: Any, values: Any, dot: str) -> None:
    """Name the one value that does not fit its field."""
    for field in dataclasses.fields(cls):
        try:
            OmegaConf.merge(base, {field.name: values[field.name]} if field.name in values else {})
        except OmegaConfBaseException as error:
            found = values[field.name]
            raise SettingError(f"{dot}{field.name}: expected {_readable(field.type)}, found {found!r}") from error


def _readable(kind: Any) -> str:
    text = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    text = str(kind) if "[" in str(kind) else text
    names = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}
    listed = re.fullmatch(r"list\[(\w+)\]", text)
    if listed:
        plural = {"int": "whole numbers", "float": "numbers", "str": "texts", "bool": "true or false"}
        return f"a list of {plural.get(listed[1], listed[1])}"
    return names.get(text, text)


def preview(name: str) -> Experiment:
    """The experiment at its paper profile, read without Hydra's composition: quick enough for listings."""
    own = _load(CONF / "experiment" / f"{name}.yaml")
    cfg = OmegaConf.create({})
    choices: dict[str, str] = {}
    for entry in own.get("defaults", []):
        if isinstance(entry, Mapping | DictConfig):
            for key, option in entry.items():
                group = str(key).removeprefix("override ").strip().lstrip("/")
                choices[group] = str(option)
                cfg[group] = _load(CONF / group / f"{option}.yaml")
    merged = OmegaConf.merge(cfg, {key: own[key] for key in own if key not in ("defaults", "profiles")})
    merged = OmegaConf.merge(merged, {"hydra": {"runtime": {"choices": choices}}})
    assert isinstance(merged, DictConfig)
    return build_experiment(merged, name)


def protocol(name: str, profile: str) -> Experiment:
    """The experiment under a profile as its YAML file has it, nothing changed on the command line."""
    return preview(name) if profile == "paper" else build_job([f"experiment={name}", f"profile={profile}"]).experiment


def mirrors(dataset: str) -> list[str]:
    """Addresses of a data set's archive, in the order to try: `url`, then `mirrors` of conf/dataset/<name>.yaml."""
    node = _load(CONF / "dataset" / f"{dataset}.yaml")
    return [str(address) for address in (node.get("url"), *node.get("mirrors", [])) if address]
