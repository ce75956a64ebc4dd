"""Draw the figures of a report, one at a time, each with its caption; what cannot be drawn costs nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.contract import Figures
from runner.report import drawing, saving
from runner.report.captions import Caption, caption
from runner.report.figures import NothingToDraw
from runner.report.findings import Failures, Findings
from runner.report.provenance import stamp


@dataclass
class Gallery:
    """The figures of one report.

    directory: of the report. manifest, warnings: of the report. partial: cells are missing, so that a figure may have
    nothing to show. written: every file; captions: by figure; left_out: figures of which nothing is measured.
    """

    directory: Path
    found: Findings
    manifest: Mapping[str, Any]
    warnings: Sequence[str]
    failures: Failures
    partial: bool = False
    written: list[Path] = field(default_factory=list)
    captions: dict[str, Caption] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def draw(self, makers: Figures, say: Callable[[str], None] = lambda line: None) -> None:
        """Draw and save figures. Raises OSError for a full disk."""
        for name, maker in makers.items():
            say(f"figure {name}")
            before = len(self.failures.records)
            read: list[drawing.Drawing] = []
            about = (self.manifest, self.warnings, self.failures)
            path = draw_one(self.directory, name, maker, *about, partial=self.partial, read=read.append)
            if path is not None:
                self.written.append(path)
                self._describe(name, maker, read[0])
            elif len(self.failures.records) == before:
                self.left_out.append(name)

    def _describe(self, name: str, maker: Any, read: drawing.Drawing) -> None:
        rows = {"claims": self.found.claims, "scorecard": self.found.scorecard}
        what = self.found.captions.get(name) or caption_of(maker)
        self.captions[name] = caption(name, what, read, rows, self.manifest, bars=self.found.bars)


def draw_one(
    directory: Path,
    name: str,
    maker: Any,
    manifest: Mapping[str, Any],
    warnings: Sequence[str],
    failures: Failures,
    *,
    suffix: str = "png",
    partial: bool = False,
    read: Callable[[drawing.Drawing], None] = lambda found: None,
) -> Path | None:
    """Draw one figure into figures/ and return its file; None where it failed, or where nothing of it is measured.

    read: callback, called with what can be read off the figure.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.=-]*", name):
        failures.add("figure", ValueError("expected a name of letters, digits and _.=-"), name)
        return None
    figure = failures.guard("figure", lambda: made(maker, partial=partial), None, name)
    if figure is None:
        return None
    (directory / "figures").mkdir(exist_ok=True)
    about = {**stamp(str(manifest.get("experiment", "")), manifest, warnings), "figure": name}
    try:
        path = saving.save(figure, directory / "figures" / name, about, suffix=suffix)
        read(drawing.read(figure))
    except OSError:  # a full disk is no fault of the figure
        raise
    except Exception as error:  # text that cannot be typeset, data that cannot be shown
        failures.add("figure", error, name)
        return None
    finally:
        figure.clear()
    return path


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


def made(maker: Any, *, partial: bool) -> Any:
    """The figure of a maker. partial: None where it shows nothing, since what it shows is not measured; where nothing
    is missing, that is an error (NothingToDraw) or a picture without data, for the reader to see."""
    try:
        figure = maker() if callable(maker) else maker
    except NothingToDraw:
        if partial:
            return None
        raise
    shown = any(ax.has_data() or ax.texts or ax.tables for ax in figure.axes)
    return figure if shown or not partial else None
