"""Draw the figures of a report, one at a time, each with its caption; what cannot be drawn costs nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.contract.analysis import Figures
from runner.report import drawing, saving
from runner.report.captions import Caption, caption
from runner.report.findings import Failures, Findings
from runner.report.provenance import stamp


def draw(
    folder: Path,
    makers: Figures,
    found: Findings,
    manifest: Mapping[str, Any],
    warnings: Sequence[str],
    failures: Failures,
    *,
    pdf: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[list[Path], dict[str, Caption]]:
    """Draw and save every figure; returns the files, and the captions by figure. Raises OSError for a full disk."""
    written: list[Path] = []
    captions: dict[str, Caption] = {}
    rows = {"claims": found.claims, "scorecard": found.scorecard}
    origin = stamp(str(manifest.get("experiment", "")), manifest, warnings)
    for name, maker in makers.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.=-]*", name):
            failures.add("figure", ValueError("expected a name of letters, digits and _.=-"), name)
            continue
        say(f"figure {name}")
        found.watched.asked.clear()
        figure = failures.guard("figure", maker, None, name) if callable(maker) else maker
        if figure is None:
            continue
        folder.mkdir(exist_ok=True)
        what = found.captions.get(name) or caption_of(maker)
        tables = sorted(found.watched.asked | found.watched.behind(maker))
        try:
            written += saving.save(figure, folder / name, {**origin, "figure": name}, pdf=pdf)
            drawn = drawing.read(figure)
            captions[name] = caption(name, what, drawn, rows, manifest, tables=tables, bars=found.bars)
        except OSError:  # a full disk is no fault of the figure
            raise
        except Exception as error:  # text that cannot be typeset, data that cannot be shown
            failures.add("figure", error, name)
        figure.clear()
    return written, captions


def caption_of(maker: Any) -> str:
    """What a figure shows: the first paragraph of the docstring of the function that draws it."""
    text = getattr(_drawing(maker), "__doc__", None) or ""
    return " ".join(text.strip().split("\n\n")[0].replace("`", "").split())


def _drawing(maker: Any) -> Any:
    """The function behind a maker: itself, what a partial holds, or the first one that a lambda calls."""
    function = getattr(maker, "func", maker)
    if getattr(function, "__name__", "") != "<lambda>":
        return function if callable(function) else None
    found: Any = None
    for name in function.__code__.co_names:
        found = getattr(found, name, None) or function.__globals__.get(name)
        if callable(found) and getattr(found, "__doc__", None):
            return found
    return None
