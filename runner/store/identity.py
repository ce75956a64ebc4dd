"""What decides a cell's numbers and the hash of it that is the cell's id; which code and machine
made them."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from runner.contract import Cell, Experiment
from runner.contract.schema import identifying


def digest(value: Any) -> str:
    """16 hexadecimal digits of the SHA-256 of a JSON value with sorted keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Identity:
    """What decides a cell's numbers, except the cell parameters: shared by all cells of one job."""

    experiment: str
    version: int
    settings: Mapping[str, Any]
    threads: int
    device: str

    @classmethod
    def of(
        cls, name: str, experiment: Experiment, threads: int = 1, device: str = "cpu"
    ) -> Identity:
        return cls(name, experiment.version, identifying(experiment), threads, device)

    @cached_property
    def key(self) -> str:
        """Hash of the settings; cells with the same key belong into one report."""
        return digest([self.experiment, self.version, self.settings, self.threads, self.device])

    def cell_id(self, cell: Cell, seed: int) -> str:
        return digest([self.key, dict(cell.params), seed])


@cache
def git_commit() -> str:
    """Commit of the checkout that this file lies in, with '+changes' when tracked files differ; ''
    outside git."""
    here = Path(__file__).resolve()
    root = here.parents[2]
    return commit_of(here, [root / name for name in ("runner", "experiments", "conf")])


def commit_of(file: Path, code: Sequence[Path] = ()) -> str:
    """Commit of the checkout in which git tracks a file, with '+changes' when tracked files of
    `code` (default: it alone) differ; '' outside git."""
    import subprocess

    def git(*arguments: str) -> str:
        try:
            done = subprocess.run(
                ["git", "-C", str(file.parent), *arguments],
                capture_output=True,
                encoding="utf-8",
                timeout=10,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return ""
        return done.stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD")
    if not commit or not git("ls-files", "--error-unmatch", str(file)):
        return ""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", *map(str, code or [file]))
    return commit + ("+changes" if changed else "")


@cache
def cpu_model() -> str:
    """Name of the processor as the system gives it, '' where it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [
        line.partition(":")[2].strip()
        for line in lines
        if line.startswith(("model name", "Hardware"))
    ]
    return names[0] if names else platform.processor()


def software() -> dict[str, Any]:
    """Versions, processor and libraries that the last digits of a number may depend on."""
    from importlib.metadata import version

    import numpy
    import torch

    from runner import __version__

    return {
        "hess_run": __version__,
        "git_commit": git_commit(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "blas": "mkl" if torch.backends.mkl.is_available() else "other",
        "scipy": version("scipy"),
        "openblas": openblas_kernel(),
    }


@cache
def openblas_kernel() -> str:
    """Kernel that NumPy's OpenBLAS chose for this processor, such as Haswell or SkylakeX; '' where
    it is another BLAS.

    SciPy's optimisers and solvers run on the same kind: their last digits follow the kernel, not
    torch's instructions.
    """
    from threadpoolctl import threadpool_info

    found = (
        library.get("architecture")
        for library in threadpool_info()
        if library["internal_api"] == "openblas"
    )
    return str(next(found, None) or "")
