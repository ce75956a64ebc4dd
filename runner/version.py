"""Which code made a number: the git commit of this checkout, where there is one."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path


@cache
def git_commit() -> str:
    """Commit of the checkout that this file lies in, with '+changes' when tracked files differ; '' outside git."""
    here = Path(__file__).resolve().parent

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
    code = ("--", "../runner", "../experiments", "../conf")
    changed = git("status", "--porcelain", "--untracked-files=no", *code)
    return commit + ("+changes" if changed else "")
