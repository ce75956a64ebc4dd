"""States of long trainings on disk: each replaced by one rename, and trusted only if its SHA-256 is right."""

from __future__ import annotations

import hashlib
import io
import logging
import pickle
import zipfile
from pathlib import Path
from typing import Any

from runner.store import tables as csv
from runner.store.check import Damaged


class DiskCheckpoints:
    """Named torch states in one folder, each replaced by one rename (`runner.contract.experiment.Checkpoints`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loaded = False
        """Whether a state has been taken up: the training is then not part of a cell's time."""

    def load(self, name: str) -> Any | None:
        import torch

        path = self.folder / f"{name}.pt"
        if not path.is_file():
            return None
        try:
            state = torch.load(io.BytesIO(_checked(path.read_bytes())), weights_only=True)
        except (Damaged, OSError, RuntimeError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
            path.rename(path.with_suffix(".damaged"))
            logging.getLogger("hess_run").warning("checkpoint %s is damaged (%s); set aside", path, error)
            return None
        self.loaded = True
        return state

    def save(self, name: str, state: Any) -> None:
        import torch

        buffer = io.BytesIO()
        torch.save(state, buffer)
        content = buffer.getvalue()
        self.folder.mkdir(parents=True, exist_ok=True)
        csv.write_bytes(self.folder / f"{name}.pt", CHECKED + hashlib.sha256(content).digest() + content)


CHECKED = b"hess-run checkpoint 1\n"


def _checked(content: bytes) -> bytes:
    """The state in a checkpoint file, whose SHA-256 stands before it; torch itself does not look. Raises Damaged."""
    if not content.startswith(CHECKED):
        return content  # written before sums were
    start = len(CHECKED) + hashlib.sha256().digest_size
    if hashlib.sha256(content[start:]).digest() != content[len(CHECKED) : start]:
        raise Damaged("SHA-256 differs")
    return content[start:]
