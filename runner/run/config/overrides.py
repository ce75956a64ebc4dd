"""Overrides: key=value in Hydra's grammar, with the experiments' own keys spelled out, and the jobs
of a sweep."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runner.contract import GROUPS, SettingError, nearest, quoted, short
from runner.run.config import files
from runner.run.config.compose import experiment_fields

TOP_LEVEL = ("seed", "threads", "device", "outputs", "jobs", "force")
"""Settings of a run."""
KNOWN_KEYS = (*TOP_LEVEL, *GROUPS, "profile", "experiment")
"""First parts of every key that a command line can set."""
FOREIGN = r"[^ -~]|[~#!&;<>^`]"
"""Characters that Hydra's grammar takes in quoted text alone."""
GRAMMAR = r"""[\[\]{}(),'"=\\]"""
"""Characters that have a meaning there."""
MOST_JOBS = 100_000
"""Jobs of one sweep; more are several sweeps."""
OPEN_TO_USERS = r"hydra/launcher|hydra\.launcher\.[\w.]+|hydra\.sweeper\.max_batch_size"
"""Keys of Hydra that a command may set."""


@dataclass(frozen=True)
class Arguments:
    """The part of a command line that describes jobs. overrides: key=value, in Hydra's grammar;
    launcher: those that are Hydra's own."""

    overrides: tuple[str, ...]
    multirun: bool = False
    launcher: tuple[str, ...] = ()


def arguments(words: Sequence[str], multirun: bool = False) -> Arguments:
    """The arguments of key=value words; `key=value` of an experiment's field becomes
    `experiment.key=value`.

    Raises SettingError for words that are no overrides, and for keys that cannot be set here.
    """
    for word in words:
        _check_word(word)
    launcher = tuple(word for word in words if _is_hydras(word))
    own = [word for word in words if not _is_hydras(word)]
    return Arguments(tuple(qualified(own)), multirun, launcher)


def _is_hydras(word: str) -> bool:
    return re.match(r"[+~]*hydra([./@=]|$)", word) is not None


def _check_word(word: str) -> None:
    """Refuse what is no override, and keys that are not open to the command line."""
    key = word.partition("=")[0]
    if ("=" not in word and not word.startswith("~")) or not key.strip("+~ "):
        name = nearest(word, files.choices("experiment"))
        hint = f"did you mean experiment={name}?" if name else "see hess-run --help"
        raise SettingError(f"expected key=value, found {short(repr(word))}; {hint}")
    if _is_hydras(word) and not re.fullmatch(OPEN_TO_USERS, key.lstrip("+")):
        hint = "; to write elsewhere, set outputs=PATH" if key.endswith("dir") else ""
        raise SettingError(
            f"{short(key)} cannot be set; of Hydra's keys, "
            f"hydra/launcher and hydra.launcher.KEY can{hint}"
        )
    name = short(key.lstrip("+~"))
    if "~" in key:
        raise SettingError(f"{name} cannot be removed; set it with {name}=VALUE")
    parts = key.lstrip("+").split(".")
    if parts[-1] == "_target_":
        raise SettingError(
            f"{short(key)}: _target_ cannot be set on the command line; "
            f"choose a file with {parts[0]}=NAME"
        )
    if parts[-1] == "kind" and parts[0] in GROUPS:
        raise SettingError(
            f"{short(key)}: the kind belongs to its file; choose another with {parts[0]}=NAME"
        )


def readable(word: str) -> str:
    """An override with a value of foreign characters (ü, ~, a typographic quote) in quotes."""
    key, _, value = word.partition("=")
    foreign = re.search(FOREIGN, value) and not re.search(GRAMMAR, value)
    return quoted(key, value) if foreign else word


def qualified(words: Sequence[str]) -> list[str]:
    """The overrides with an experiment's own keys in full: hidden=3 is experiment.hidden=3."""
    names: list[str] = []
    words = [readable(word) for word in words]
    for word in words:
        if word.startswith("experiment="):
            names += [value.partition("=")[2] for value in read(word).values()][:MOST_JOBS]
    return [_qualify(word, names) for word in words]


def _qualify(override: str, names: Sequence[str]) -> str:
    key = override.partition("=")[0]
    # Also a field that a file leaves at its default; unknown ones are refused later.
    if re.fullmatch(rf"({'|'.join(GROUPS)}|experiment)\.\w+", key):
        return f"++{override}"
    if key not in KNOWN_KEYS:
        known = files.choices("experiment")
        if any(name in known and key in experiment_fields(name) for name in names):
            return f"++experiment.{override}"
    return override


@dataclass(frozen=True)
class Word:
    """One override. key: without + and ~; size: how many values a sweep has; value: as Hydra's
    grammar reads it."""

    text: str
    key: str
    sweep: bool
    size: int
    value: Any
    override: Any

    def values(self) -> list[str]:
        """The overrides that a sweep stands for, one for each value; of anything else the override
        itself."""
        if not self.sweep:
            return [self.text]
        from hydra.core.override_parser.types import Glob

        key = self.override.get_key_element()
        value = self.override.value()
        if isinstance(value, Glob):
            return [f"{key}={name}" for name in value.filter(files.choices(self.key))]
        try:
            return [f"{key}={item}" for item in self.override.sweep_string_iterator()]
        except Exception as error:  # OmegaConf's, for a sweep inside a sweep
            raise SettingError(
                f"{self.key}: cannot sweep over {short(self.text)}; expected a plain list"
            ) from error


def read(text: str) -> Word:
    """An override as Hydra's grammar reads it. Raises SettingError, which names the key, for what
    it does not."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import IntervalSweep
    from hydra.errors import HydraException

    name = short(text.partition("=")[0].lstrip("+~"))
    shown = short(repr(text.lstrip("+")))
    try:
        (override,) = OverridesParser.create().parse_overrides([text])
    except HydraException as error:
        reason = _grammar(str(error).splitlines()[0])
        raise SettingError(
            f"{name}: cannot read {shown}: {short(reason, 100)}; "
            "quote values with brackets or commas"
        ) from error
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise SettingError(f"{name}: cannot read {shown}: {short(error, 100)}") from error
    value = override.value()
    _check_numbers(name, text.partition("=")[2], value)
    if isinstance(value, IntervalSweep):
        raise SettingError(
            f"{name}: expected values to sweep over, found an interval; use range or choice"
        )
    sweep = bool(override.is_sweep_override())
    size = _size(override, value) if sweep else 1
    return Word(text, str(override.key_or_group), sweep, size, value, override)


def _check_numbers(name: str, written: str, value: Any) -> None:
    """Refuse numbers that Hydra's grammar takes and a reader may take for another: ' 42 ', '+42'
    and '4_2'."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    bare = re.sub(r"""(['"]).*?(?<!\\)\1""", "", written)  # without what is quoted
    odd = re.search(r"(?<![\w.+-])(\+[\d.]|-?\d[\d.]*_\d)[\w.]*(?![\w./-])", bare)
    if (number and written != written.strip()) or (odd and not isinstance(value, str)):
        raise SettingError(
            f"{name}: expected a number of digits alone, found {short(repr(written))}"
        )


def _grammar(text: str) -> str:
    """A grammar error in a few words, without the names of the parser's tokens and the link to the
    manual."""
    text = " ".join(text.partition("See https")[0].split())
    text = re.sub(r"expecting \{.*", "", text)
    unexpected = r"(mismatched input|extraneous input|no viable alternative at input) '(.*?)'.*"
    return re.sub(unexpected, r"unexpected '\2'", text).replace("<EOF>", "end").strip(" ,.;")


def _size(override: Any, value: Any) -> int:
    """How many values a sweep has, without making them."""
    from hydra.core.override_parser.types import Glob, RangeSweep

    if isinstance(value, RangeSweep):
        if value.start is None or value.stop is None or not value.step:
            raise SettingError(
                f"{override.key_or_group}: expected range(start,stop), "
                f"found {short(override.input_line)}"
            )
        count = (value.stop - value.start) / value.step
        if math.isfinite(count):
            return max(0, math.ceil(count))
        return 10**18
    if isinstance(value, Glob):
        return len(value.filter(files.choices(str(override.key_or_group))))
    return len(value.list)


def expand(arguments: Arguments) -> list[list[str]]:
    """The overrides of every job: one list for a run, the product of all sweeps for a multirun."""
    words = [read(word) for word in arguments.overrides]
    for word in map(read, arguments.launcher):
        if word.sweep:
            raise SettingError(f"{word.key}: expected one value, found {short(word.text)}")
    swept = [word for word in words if word.sweep]
    if swept and not arguments.multirun:
        raise SettingError(f"{short(swept[0].text)}: several values need -m (multirun) in front")
    empty = next((word for word in swept if word.size == 0), None)
    if empty:
        raise SettingError(
            f"{empty.key}: expected at least one value, found none in {short(empty.text)}"
        )
    count = math.prod(word.size for word in swept)
    if count > MOST_JOBS:
        largest = max(swept, key=lambda word: word.size)
        raise SettingError(
            f"{largest.key}: expected a sweep of at most {MOST_JOBS:,} jobs, found {count:,}"
        )
    choices = [word.values() for word in words]
    return [list(job) for job in itertools.product(*choices)]
