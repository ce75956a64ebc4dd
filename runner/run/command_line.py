"""A command line: its options, its overrides with the experiments' own keys spelled out, and the jobs of a sweep."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from runner.contract import GROUPS, SettingError
from runner.run.sources import KNOWN_KEYS, choices, nearest, short

VERBS = ("list", "plan", "report", "show", "data")
MOST_JOBS = 100_000
"""Jobs of one sweep; more are several sweeps."""
OPEN_TO_USERS = r"hydra/launcher|hydra\.launcher\.[\w.]+|hydra\.sweeper\.max_batch_size"
"""Keys of Hydra that a command may set; the others are this program's own."""


@dataclass(frozen=True)
class Arguments:
    """A command line, checked as far as it can be without composing.

    overrides: key=value, in Hydra's grammar. launcher: those of them that are Hydra's own. asks: an option that shows
    something instead of running (--cfg job, --info, …), as Hydra takes it.
    """

    overrides: tuple[str, ...]
    multirun: bool = False
    launcher: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    config_dir: tuple[str, ...] = field(default=())

    def argv(self, overrides: Sequence[str] | None = None) -> list[str]:
        """The command line for Hydra; `overrides` instead of those given."""
        words = [*self.launcher, *(self.overrides if overrides is None else overrides)]
        return [*self.config_dir, *self.asks, *(["--multirun"] if self.multirun and not self.asks else []), *words]


def parse(arguments: Sequence[str]) -> Arguments:
    """Split a command line by Hydra's own parser; `key=value` of an experiment's field becomes `experiment.key=value`.

    Raises SettingError for options and words that cannot be used here.
    """
    from runner.run import sources
    from runner.run.hydra_words import options

    found = options(arguments)
    if found.config_dir is not None:
        sources.add(found.config_dir)
    asks: tuple[str, ...] = ()
    if found.cfg:
        asks = ("--cfg", found.cfg, *(["--resolve"] if found.resolve else []))
        asks += ("--package", found.package) if found.package else ()
    elif found.info:
        asks = ("--info", found.info)
    for word in found.overrides:
        _check_word(word)
    launcher = tuple(w for w in found.overrides if _is_hydras(w))
    own = [w for w in found.overrides if not _is_hydras(w)]
    places = tuple(("--config-dir", found.config_dir)) if found.config_dir is not None else ()
    return Arguments(tuple(qualified(own)), bool(found.multirun), launcher, asks, places)


def _is_hydras(word: str) -> bool:
    return re.match(r"[+~]*hydra[./@=]", word) is not None or word.lstrip("+~") == "hydra"


def _check_word(word: str) -> None:
    """Refuse what is no override, and keys that are not open to the command line."""
    key = word.partition("=")[0]
    if ("=" not in word and not word.startswith("~")) or not key.strip("+~ "):
        raise SettingError(f"expected key=value, found {short(repr(word))}; {_meant(word)}")
    if _is_hydras(word) and not re.fullmatch(OPEN_TO_USERS, key.lstrip("+")):
        raise SettingError(f"{short(key)}: not open here; of Hydra's keys, hydra/launcher and hydra.launcher.KEY are")
    parts = key.lstrip("+~").split(".")
    if parts[-1] == "_target_":
        raise SettingError(
            f"{short(key)}: what is imported is said by files alone; name a choice, as in {parts[0]}=NAME"
        )
    if parts[-1] == "kind" and parts[0] in GROUPS:
        raise SettingError(f"{short(key)}: the kind belongs to its file; choose another with {parts[0]}=NAME")


def _meant(word: str) -> str:
    if word in choices("experiment"):
        return f"did you mean experiment={word}?"
    near = nearest(word, [*VERBS, *choices("experiment")])
    name = near.removeprefix(" (did you mean ").removesuffix("?)")
    if not near:
        return "see hess-run --help"
    return f"did you mean {name if name in VERBS else f'experiment={name}'}?"


def qualified(words: Sequence[str]) -> list[str]:
    """The overrides with an experiment's own keys in full: hidden=3 is experiment.hidden=3."""
    from runner.run.hydra_words import read

    names: list[str] = []
    for word in words:
        if word.startswith("experiment="):
            names += [value.partition("=")[2] for value in read(word).values()][:MOST_JOBS]
    return [_qualify(word, names) for word in words]


def _qualify(override: str, names: Sequence[str]) -> str:
    from runner.run.reading import experiment_fields

    key, _, value = override.partition("=")
    if re.fullmatch(rf"({'|'.join(GROUPS)})\.\w+", key):
        return (
            f"++{override}"  # also a field that the kind's file leaves at its default; unknown ones are refused later
        )
    own = key.removeprefix("experiment.")
    if re.fullmatch(r"[A-Za-z_]\w*", own) and (own != key or key not in KNOWN_KEYS):
        known = choices("experiment")
        for name in names:
            if name in known and own in experiment_fields(name):
                return f"++experiment.{own}={value}"  # also a field that the YAML file leaves at its default
    return override


def expand(arguments: Arguments) -> list[list[str]]:
    """The overrides of every job: one list for a run, the product of all sweeps for a multirun."""
    from runner.run.hydra_words import read

    words = [read(word) for word in arguments.overrides]
    for word in (read(word) for word in arguments.launcher):
        if word.sweep:
            raise SettingError(f"{word.key}: expected one value, found {short(word.text)}")
    swept = [word for word in words if word.sweep]
    if swept and not arguments.multirun:
        raise SettingError(f"{short(swept[0].text)}: several values need -m (multirun) in front")
    empty = next((word for word in swept if word.size == 0), None)
    if empty:
        raise SettingError(f"{empty.key}: expected at least one value, found none in {short(empty.text)}")
    count = math.prod(word.size for word in swept)
    if count > MOST_JOBS:
        largest = max(swept, key=lambda word: word.size)
        raise SettingError(f"{largest.key}: expected a sweep of at most {MOST_JOBS:,} jobs, found {count:,}")
    return [list(job) for job in itertools.product(*(word.values() for word in words))]
