"""Which code and which machine made a number: the git commit of this checkout, processor and libraries."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any


@cache
def git_commit() -> str:
    """Commit of the checkout that this file lies in, with '+changes' when tracked files differ; '' outside git."""
    here = Path(__file__).resolve().parents[2]

    def git(*arguments: str) -> str:
        try:
            done = subprocess.run(
                ["git", "-C", str(here), *arguments], capture_output=True, text=True, timeout=10, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return ""
        return done.stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD")
    tracked = git("ls-files", "--error-unmatch", str(Path(__file__).resolve()))
    if not commit or not tracked:
        return ""
    code = ("--", "runner", "experiments", "conf")
    changed = git("status", "--porcelain", "--untracked-files=no", *code)
    return commit + ("+changes" if changed else "")


@cache
def cpu_model() -> str:
    """Name of the processor as the system gives it, '' where it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Hardware"))]
    return names[0] if names else platform.processor()


def software() -> dict[str, Any]:
    """Versions, processor and libraries that the last digits of a number may depend on."""
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
    """Kernel that NumPy's OpenBLAS chose for this processor, such as Haswell or SkylakeX; '' where it is another BLAS.

    SciPy's optimisers and solvers run on the same kind: their last digits follow the kernel, not torch's instructions.
    """
    from threadpoolctl import threadpool_info

    found = (library.get("architecture") for library in threadpool_info() if library["internal_api"] == "openblas")
    return str(next(found, None) or "")
