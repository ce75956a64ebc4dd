"""key=value words that belong to a command: the fields of a class, read and checked as the settings
of an experiment are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_origin

from runner.contract import SettingError, check, quoted, setting, short
from runner.store.job import OUTPUTS, read_folder


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The keys of a command; of this class none."""

    def __post_init__(self) -> None:
        check(self, "")


@dataclass(frozen=True, kw_only=True)
class Outputs(Keys):
    """The folder that a command reads."""

    outputs: str = setting(OUTPUTS, help="folder of results")

    @property
    def folder(self) -> Path:
        """Raises SettingError for one that is named and not there: published results would be shown
        in its place."""
        return read_folder(self.outputs)

    @property
    def word(self) -> list[str]:
        """The folder as a setting of a run; nothing where it is the usual one."""
        return [quoted("outputs", self.outputs)] if self.outputs != OUTPUTS else []


def names_of(cls: Any) -> list[str]:
    """The keys of a class."""
    return [f.name for f in fields(cls)]


def read_keys(cls: Any, words: Sequence[str]) -> Any:
    """The keys that some words set. A list is written with commas, with or without brackets. Raises
    SettingError with one line for any mistake."""
    from runner.run.config.overrides import read, readable
    from runner.run.config.types import hints, typed

    values = {}
    for word in map(readable, words):
        key, _, value = word.partition("=")
        if get_origin(hints(cls).get(key)) is list and not value.startswith("["):
            word = f"{key}=[{value}]"
        found = read(word)
        if found.sweep:
            raise SettingError(f"{key}: expected one value, found {short(word)}")
        values[found.key] = found.value
    return cls(**typed(cls, values, "", ""))
