"""Hydra's words: overrides as its grammar reads them, and what it says in many lines, put into one.

Every regular expression on the texts of Hydra and OmegaConf is here.
They are held by tests/run/test_hydra_words.py against the real messages, so that a new release that words them
otherwise is noticed there, not by a user.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from runner.contract import SettingError
from runner.run import sources
from runner.run.sources import choices, nearest, short

LAUNCHERS = {"joblib": "joblib", "submitit_local": "slurm", "submitit_slurm": "slurm", "ray": "ray"}
"""Launcher -> the extra of this project that brings it."""


def missing_choice(text: str) -> tuple[str, str] | None:
    """(group, choice) of a file that is not there."""
    found = re.search(r"(?:Could not find|Could not load) '([\w/]+)/([^'/]+)'", text)
    return (found[1], found[2]) if found else None


def lacks(text: str, group: str) -> bool:
    """Whether a choice of `group` was not made."""
    return f"must specify '{group}'" in text


def unknown_key(text: str) -> str | None:
    """The key of an override that nothing declares."""
    found = re.search(r"(?:Could not override|Could not delete from config\. ?) ?'([^']+)'", text)
    return found[1] if found else None


def unfit_override(text: str) -> str | None:
    """The override whose value its place cannot take."""
    found = re.match(r"Error merging override (.+)", text)
    return found[1].lstrip("+") if found else None


def full_key(text: str) -> str | None:
    """The key that an OmegaConf error is about."""
    found = re.search(r"full_key: (\S+)", text)
    return found[1] if found else None


def first_line(text: str) -> str:
    """The first line that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def grammar(text: str) -> str:
    """A grammar error in a few words, without the names of the parser's tokens and the link to the manual."""
    text = " ".join(text.partition("See https")[0].split())
    text = re.sub(r"expecting \{.*", "", text)
    text = re.sub(
        r"(mismatched input|extraneous input|no viable alternative at input) '(.*?)'.*", r"unexpected '\2'", text
    )
    return text.replace("<EOF>", "end").strip(" ,.;")


def missing_launcher(name: str) -> str:
    """One line for a launcher whose plugin is not installed."""
    if name in LAUNCHERS:
        extra = LAUNCHERS[name]
        return f"hydra/launcher={name}: its plugin is not installed; get it with pip install 'hess-run[{extra}]'"
    presets = sorted(path.stem for path in (sources.CONF / "hydra" / "launcher").glob("*.yaml"))
    return f"hydra/launcher={name}: no such launcher; known: basic, {', '.join([*presets, *LAUNCHERS])} (docs/scale.md)"


@dataclass(frozen=True)
class Word:
    """One override of the command line. key: without + and ~; values: the text of each value of a sweep, lazily."""

    text: str
    key: str
    sweep: bool
    size: int
    value: Any
    override: Any

    def values(self) -> list[str]:
        """The overrides that a sweep stands for, one a value; of anything else the override itself."""
        if not self.sweep:
            return [self.text]
        from hydra.core.override_parser.types import Glob

        key, found = self.override.get_key_element(), self.override.value()
        names = found.filter(choices(self.key)) if isinstance(found, Glob) else self.override.sweep_string_iterator()
        return [f"{key}={value}" for value in names]


def read(text: str) -> Word:
    """An override as Hydra's grammar reads it. Raises SettingError, which names the key, for what it does not."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import IntervalSweep
    from hydra.errors import HydraException

    name, shown = short(text.partition("=")[0].lstrip("+~")), short(repr(text.lstrip("+")))
    try:
        (override,) = OverridesParser.create().parse_overrides([text])
    except HydraException as error:
        said = grammar(str(error).partition(text)[0] if len(text) > 200 else str(error).splitlines()[0])
        raise SettingError(
            f"{name}: cannot read {shown}: {short(said, 100)}; quote values with brackets or commas"
        ) from error
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise SettingError(f"{name}: cannot read {shown}: {short(error, 100)}") from error
    value = override.value()
    if isinstance(value, IntervalSweep):
        raise SettingError(f"{name}: expected values to sweep over, found an interval; use range or choice")
    sweep = bool(override.is_sweep_override())
    return Word(text, str(override.key_or_group), sweep, _size(override, value) if sweep else 1, value, override)


def _size(override: Any, value: Any) -> int:
    """How many values a sweep has, without making them."""
    from hydra.core.override_parser.types import Glob, RangeSweep

    if isinstance(value, RangeSweep):
        if value.start is None or value.stop is None or not value.step:
            raise SettingError(
                f"{override.key_or_group}: expected range(start,stop), found {short(override.input_line)}"
            )
        count = (value.stop - value.start) / value.step
        return max(0, math.ceil(count)) if math.isfinite(count) else 10**18
    if isinstance(value, Glob):
        return len(value.filter(choices(str(override.key_or_group))))
    return len(value.list)


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """A command line as Hydra's own parser reads it. Raises SettingError for options that are not open here."""
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        known = [flag for flag in parser._option_string_actions if flag.startswith("--")]
        wrong = next((a for a in arguments if a.startswith("-") and a.split("=")[0] not in known), "")
        hint = nearest(wrong, known) if wrong.startswith("--") else ""
        raise SettingError(f"{short(message, 160)}{hint}; see hess-run --help")

    parser.error = refuse  # type: ignore[method-assign]
    found = parser.parse_intermixed_args(list(arguments))
    for closed in ("config_path", "config_name", "experimental_rerun"):
        if getattr(found, closed) is not None:
            option = f"--{closed.replace('_', '-')}"
            raise SettingError(f"{option} is not open here; add a folder of your own with --config-dir DIR")
    if found.resolve and not found.cfg:
        raise SettingError("--resolve goes with --cfg")
    asked = [name for name in ("cfg", "info", "multirun", "run") if getattr(found, name)]
    if len(asked) > 1 and not (found.multirun and len(asked) == 2 and found.cfg):
        raise SettingError(f"expected one of {', '.join('--' + name for name in asked)}, found all of them")
    return found
