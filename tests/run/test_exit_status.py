"""Exit statuses, where the interpreter itself would have it otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INTERRUPTED_IN_A_STRING = """
import sys
from runner.run import exit_status

sys.exit(exit_status.guarded(lambda: exec("raise KeyboardInterrupt")))
"""


def test_an_interruption_inside_an_executed_string_ends_with_130(tmp_path: Path) -> None:
    """CPython 3.11 ends `python -m` by SIGINT instead, even where the exception was caught."""
    (tmp_path / "interrupted_import.py").write_text(INTERRUPTED_IN_A_STRING)
    ended = subprocess.run(
        [sys.executable, "-m", "interrupted_import"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 130 and ended.stderr.count("hess-run: interrupted") == 1
