"""One experiment at one seed: its cells, and the output folder that they are written into."""

from __future__ import annotations

import json
import os
import re
import uuid
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from runner.contract import Cell, Experiment, SettingError, short, typed_path
from runner.files import MARKER, is_scratch, write_bytes
from runner.store import tables as csv
from runner.store.archive import CELLS, PUBLISHED, published_root
from runner.store.identity import Identity
from runner.store.store import EXPERIMENT, Store

OUTPUTS = "outputs"
"""The output folder where none is named."""
PAPER = "paper"
"""The profile of the paper's protocol."""


@dataclass(frozen=True)
class Job:
    """One experiment at one seed, with everything that running it needs."""

    name: str
    experiment: Experiment
    seed: int
    outputs: Path
    profile: str = PAPER
    threads: int = 1
    device: str = "cpu"
    jobs: int = 1
    force: bool = False
    kind: str = EXPERIMENT
    published: bool = True
    """Whether published cells count as stored."""
    run: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False)
    """Identity of this run, which its cells and failures record: clocks of different machines
    disagree."""
    overrides: tuple[str, ...] = ()
    """The command line of this job without experiment, seed and profile: for the commands that
    reports print."""
    options: tuple[str, ...] = ()
    """What these commands need before their settings: --config-dir with a folder of the user's."""

    @cached_property
    def identity(self) -> Identity:
        return Identity.of(self.name, self.experiment, self.threads, self.device)

    @property
    def store(self) -> Store:
        return Store(self.outputs, self.name, published=self.published, kind=self.kind)

    @property
    def only_run(self) -> str:
        """The run whose cells count as stored; "" for any. `force` asks for all of them again."""
        return self.run if self.force else ""

    def cells(self) -> list[tuple[str, Cell]]:
        """(id, cell) of every cell of this job, in order."""
        identity = self.identity
        return [(identity.cell_id(cell, self.seed), cell) for cell in self.experiment.cells()]


FORMAT = 1
OWN = (MARKER, ".multirun", PUBLISHED)


def claim_outputs(root: Path) -> None:
    """Make `root` an output folder of hess-run, or refuse: it must be new, empty, or already ours,
    and writable."""
    check_outputs(root)
    if not os.access(_there(root), os.W_OK | os.X_OK):
        raise SettingError(f"outputs: {root} cannot be written; choose another with outputs=PATH")
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not is_claimed(root):
            mark = json.dumps({"project": "hess-run", "format": FORMAT})
            write_bytes(root / MARKER, mark.encode() + b"\n")
    except OSError as error:
        reason = f"{root} cannot be written ({error.strerror})"
        raise SettingError(f"outputs: {reason}; choose another with outputs=PATH") from error


def read_folder(text: str) -> Path:
    """The output folder of a command that only reads. Raises SettingError for one that is named and
    not there."""
    root = typed_path("outputs", text)
    if text != OUTPUTS and not root.is_dir():
        found = f"the file {root}" if root.exists() else "none"
        raise SettingError(
            f"outputs: expected a folder of results at {short(root, 200)}, found {found}; a run "
            "or hess-run report makes it"
        )
    return root


def check_outputs(root: Path) -> None:
    """Raise SettingError when `root` cannot be an output folder, whether it can be written or
    not."""
    published = published_root()
    try:
        if re.search("[\ud800-\udfff]", str(root)):
            raise SettingError(f"outputs: expected a path in UTF-8, found {short(root)}")
        if published and Path(os.path.realpath(root)).is_relative_to(published.resolve()):
            raise SettingError(
                f"outputs: {root} holds published results; only hess-run publish writes there"
            )
        if root.is_symlink() and not root.exists():
            raise SettingError(f"outputs: {root} is a link that leads nowhere; choose another")
        if not (place := _there(root)).is_dir():
            raise SettingError(f"outputs: expected a folder, found the file {place}")
        if root.exists() and not is_claimed(root):
            _check_content(root)
    except OSError as error:
        raise SettingError(
            f"outputs: {root!s:.80} cannot be used ({error.strerror}); choose outputs=PATH"
        ) from error


def _there(place: Path) -> Path:
    """A place, or the first folder above it that is there."""
    while not place.exists() and place != place.parent:
        place = place.parent
    return place


def is_claimed(root: Path) -> bool:
    """Whether the folder says that it is ours. Raises SettingError where it says that it is another
    program's."""
    marker = root / MARKER
    if not marker.exists():
        return False
    try:
        found = csv.read_json(marker)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in csv.EXHAUSTED:
            raise
        return False  # damaged: what else lies in the folder decides
    if (
        not isinstance(found, dict)
        or found.get("project") != "hess-run"
        or found.get("format") != FORMAT
    ):
        raise SettingError(
            f"outputs: {marker} is not this project's (format {FORMAT}); choose outputs=PATH"
        )
    return True


def _check_content(root: Path) -> None:
    """A folder without a marker is ours if it holds nothing but our scratch files and claimed
    folders (`demo` claims one below it), or a store: then the marker is written again, as after a
    kill at the very beginning or a clean-up that took the dot files along."""
    others = [
        path
        for path in root.iterdir()
        if not (path.name in OWN or is_scratch(path) or (path / MARKER).is_file())
    ]
    stores = (*root.glob("*/cells/*.zip"), *root.glob(f"{PUBLISHED}/*/{CELLS}"))
    if others and not stores:
        raise SettingError(
            f"outputs: {root} holds files that are not hess-run's (no {MARKER}); "
            "choose an empty folder with outputs=PATH"
        )
