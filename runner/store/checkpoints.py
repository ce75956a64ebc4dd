"""States of long trainings: each replaced by one rename, and used only if its SHA-256 is right."""

from __future__ import annotations

import hashlib
import io
import logging
from pathlib import Path
from typing import Any

from runner.files import set_aside, write_bytes
from runner.store.cells import Damaged

LOGGER = logging.getLogger("hess_run")
CHECKED = b"hess-run checkpoint 1\n"


class DiskCheckpoints:
    """Named torch states in one folder, each replaced by one rename
    (`runner.contract.experiment.Checkpoints`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loaded = False
        """Whether a state has been taken up: the training is then not part of a cell's time."""

    def load(self, name: str) -> Any | None:
        import pickle
        import zipfile

        import torch

        path = self.folder / f"{name}.pt"
        if not path.is_file():
            return None
        content = path.read_bytes()
        try:
            state = torch.load(io.BytesIO(_checked(content)), map_location="cpu", weights_only=True)
        except (
            Damaged,
            RuntimeError,
            EOFError,
            pickle.UnpicklingError,
            zipfile.BadZipFile,
        ) as error:
            if "allocate" in str(error):  # not enough memory says nothing about the file
                raise
            place = set_aside(path, path.with_suffix(".damaged"))
            LOGGER.warning("checkpoint %s is damaged (%s); moved to %s", path, error, place)
            return None
        self.loaded = True
        return state

    def save(self, name: str, state: Any) -> None:
        import torch

        buffer = io.BytesIO()
        torch.save(state, buffer)
        content = buffer.getvalue()
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{name}.pt"
        if path.is_file() and not path.read_bytes().startswith(CHECKED):
            set_aside(path, path.with_suffix(".damaged"))
        write_bytes(path, CHECKED + hashlib.sha256(content).digest() + content)


def _checked(content: bytes) -> bytes:
    """The state in a checkpoint file, whose SHA-256 stands before it; torch itself does not look.
    Raises Damaged."""
    start = len(CHECKED) + hashlib.sha256().digest_size
    if (
        not content.startswith(CHECKED)
        or hashlib.sha256(content[start:]).digest() != content[len(CHECKED) : start]
    ):
        raise Damaged("SHA-256 differs")
    return content[start:]
