"""The keys of `hess-run diagnose`."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, fields
from pathlib import Path

from runner.contract import SettingError, quoted, setting, short, typed_path
from runner.run.keys import Keys

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
class Request(Keys):
    """What is measured, of which network, and where the page goes."""

    nodes: list[str] = setting(
        [],
        help="outputs of which submodules, names or patterns (default: those with parameters "
        "directly below the module); * stays inside one part of a name, ** crosses its dots: "
        "layers.*,**.attn",
    )
    output: str = setting(
        "", help="which tensor of a structured output the loss gets: logits, or 0 (default: all)"
    )
    batch_dim: int = setting(
        0, at_least=0, help="dimension of the examples in inputs (1 for batch_first=False)"
    )
    eigenvalues: int = setting(10, above=0, help="how many of the largest")
    memory: float = setting(1.0, above=0, at_most=2.0**20, unit="GiB", help="for one measurement")
    seed: int = setting(42, at_least=0, at_most=2**63 - 1)
    device: str = "cpu"
    threads: int = setting(1, above=0, at_most=1024)

    target: str = setting("", help="package.module:function or file.py:function")
    steps: list[int] = setting([], help="of a training: these only (default: every one)")
    checkpoints: list[str] = setting(
        [], help="saved states, files or patterns (runs/step*.pt): one row each"
    )
    batches: int = setting(16, above=0, help="used of a loader")
    parts: list[str] = setting([], choices=PARTS, help="default: all")
    outputs: str = setting("outputs/diagnose", help="folder of the pages")
    name: str = setting("", help="of the page (default: MODULE-FUNCTION)")
    force: bool = setting(False, help="measure again what is stored")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name and not re.fullmatch(r"\w[\w.-]*", self.name):
            found = short(repr(self.name))
            raise SettingError(f"name: expected letters, digits, '.', '-' and '_', found {found}")
        if self.words and not self.target:
            raise SettingError(
                "diagnose: target=package.module:function or target=file.py:function is missing"
            )

    @property
    def budget(self) -> int:
        """Bytes for one measurement."""
        return int(self.memory * (1 << 30))

    @property
    def place(self) -> str:
        """The target, with the home folder in the place of ~."""
        return str(typed_path("target", self.target))

    @property
    def file(self) -> str:
        """The file or module of the target."""
        return self.place.rpartition(":")[0] or self.place

    @property
    def states(self) -> list[str]:
        """Files or patterns of saved states."""
        return [str(typed_path("checkpoints", path)) for path in self.checkpoints]

    @property
    def folder(self) -> Path:
        """The folder of the pages, whatever the target does to the working folder."""
        return typed_path("outputs", self.outputs).absolute()

    @property
    def words(self) -> list[str]:
        """The keys that have other values than the usual ones."""
        words = []
        for key in sorted(fields(self), key=lambda key: key.name != "target"):
            value = getattr(self, key.name)
            if isinstance(value, list) and value:
                items = ",".join(quoted("", str(item))[1:] for item in value)
                words.append(f"{key.name}={items}")
            elif value and value != key.default:
                words.append(quoted(key.name, str(value)))
        return words

    @property
    def command(self) -> str:
        """The command line."""
        return shlex.join(["hess-run", "diagnose", *self.words])
