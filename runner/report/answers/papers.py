"""The list of papers: what `experiments/papers.toml` says of each."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

PAPERS_FILE = Path(__file__).resolve().parents[3] / "experiments" / "papers.toml"
"""What to cite, main finding, figure and anchor of each paper."""


@cache
def known_papers() -> Mapping[str, Mapping[str, Any]]:
    """The entries of papers.toml; none where the package of experiments is not installed."""
    if PAPERS_FILE.is_file():
        return tomllib.loads(PAPERS_FILE.read_text(encoding="utf-8"))
    return {}


@cache
def anchors() -> Mapping[str, str]:
    """Paper -> the first part of the anchors of its rows."""
    return {paper: str(about["anchor"]) for paper, about in known_papers().items()}
