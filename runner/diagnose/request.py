"""The keys of `hess-run diagnose`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from runner.contract import SettingError, check, one_of, setting, short, typed_path, whole_number

PARTS = (
    "network",
    "certificate",
    "layers",
    "groups",
    "eigenvalues",
    "density",
    "trace",
    "noise",
    "batches",
)
"""What is measured, in this order."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Keys that change numbers."""

    nodes: tuple[str, ...] = ()
    eigenvalues: int = setting(10, above=0)
    memory: float = setting(1.0, above=0, at_most=2.0**20)
    output: str = ""
    batch_dim: int = setting(0, at_least=0)
    seed: int = setting(42, at_least=0, at_most=2**63 - 1)
    device: str = "cpu"
    threads: int = setting(1, above=0, at_most=1024)

    @property
    def budget(self) -> int:
        """Bytes for one measurement."""
        return int(self.memory * (1 << 30))


@dataclass(frozen=True, kw_only=True)
class Request(Options):
    """A parsed command line."""

    target: str = ""
    steps: tuple[int, ...] = ()
    checkpoints: tuple[str, ...] = ()
    batches: int = setting(16, above=0)
    parts: tuple[str, ...] = ()
    outputs: Path = Path("outputs/diagnose")
    name: str = ""
    force: bool = False
    words: tuple[str, ...] = ()
    """The words of the command line."""

    def __post_init__(self) -> None:
        if not self.target:
            raise SettingError(
                "diagnose: target=package.module:function or target=file.py:function is missing"
            )
        check(self, "")
        one_of("parts", list(self.parts), PARTS)
        if self.name and not re.fullmatch(r"\w[\w.-]*", self.name):
            found = short(repr(self.name))
            raise SettingError(f"name: expected letters, digits, '.', '-' and '_', found {found}")

    @property
    def file(self) -> str:
        """The file or module of the target."""
        return self.target.rpartition(":")[0] or self.target


def parse(words: Sequence[str]) -> Request:
    """The request of key=value words.

    Raises SettingError for unknown keys and values of the wrong kind.
    """
    defaults = {f.name: f.default for f in fields(Request) if f.name != "words"}
    values: dict[str, Any] = {}
    for word in words:
        key, _, text = word.partition("=")
        if key not in defaults:
            near = get_close_matches(key, defaults, n=1)
            hint = f"did you mean {near[0]}=?" if near else f"known: {', '.join(defaults)}"
            raise SettingError(f"diagnose: unknown key {short(repr(key))}; {hint}")
        values[key] = _value(key, text, type(defaults[key]))
    return Request(**values, words=tuple(words))


def _value(key: str, text: str, kind: type) -> Any:
    if kind is bool:
        one_of(key, text.lower(), ("true", "false"))
        return text.lower() == "true"
    if kind is tuple:
        items = [word.strip() for word in text.strip("[]").split(",")]
        names = tuple(item for item in items if item)
        if key == "checkpoints":
            return tuple(str(typed_path(key, name)) for name in names)
        if key == "steps":
            return tuple(whole_number(key, name) for name in names)
        return names
    if kind is int:
        return whole_number(key, text)
    if key in ("target", "outputs"):
        place = typed_path(key, text)
        return str(place) if kind is str else place
    try:
        return kind(text)
    except ValueError as error:
        raise SettingError(f"{key}: expected a number, found {short(repr(text))}") from error
