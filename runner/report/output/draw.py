"""Draw the figures of a report, one at a time, each with its caption, and save them with their
provenance.

A figure that cannot be drawn is recorded and costs nothing else. The same figure gives the same
bytes.
"""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.contract import Figures, Redrawn
from runner.report.answers.findings import Failures
from runner.report.answers.rows import Row
from runner.report.answers.scope import Scope
from runner.report.figures import NothingToDraw, drawn_in
from runner.report.figures.annotations import head, noted
from runner.report.figures.captions import Caption, caption, outcome_on
from runner.report.output.manifest import stamp, write
from runner.report.output.page import VECTOR

if TYPE_CHECKING:
    from matplotlib.figure import Figure


DPI = 160
FORMATS = ("png", *VECTOR)


def image_of(figure: Figure, stamp: Mapping[str, Any], suffix: str = "png") -> bytes:
    """The file of a figure.

    Parameters
    ----------
    stamp
        Provenance (experiment, figure, run, commit, profile, data …). It goes into the file's
        metadata as JSON. Only stand-in data and a profile other than the paper's are also written
        below the plot.
    suffix
        One of `FORMATS`.

    Notes
    -----
    The same figure and stamp give the same bytes.
    """
    import matplotlib

    known = {key: str(value) for key, value in stamp.items() if value not in ("", None)}
    record = json.dumps(known)
    title = " ".join(str(stamp[k]) for k in ("experiment", "figure") if stamp.get(k))
    metadata: dict[str, dict[str, Any]] = {
        "png": {"Title": title, "Description": record, "Software": "hess-run"},
        "pdf": {"Title": title, "Subject": record, "Creator": "hess-run", "CreationDate": None},
        "svg": {"Title": title, "Description": record, "Creator": "hess-run", "Date": None},
    }
    _fix_layout(figure)
    footer = _footer(figure, stamp)
    buffer = io.BytesIO()
    try:
        with matplotlib.rc_context({"svg.hashsalt": "hess-run"}):
            box: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.05, "dpi": DPI}
            logging.getLogger("fontTools").setLevel(
                logging.ERROR
            )  # warns of the dates of matplotlib's own fonts
            figure.savefig(buffer, format=suffix, metadata=metadata[suffix], **box)
    finally:
        if footer is not None:
            footer.remove()
    return buffer.getvalue()


def _footer(figure: Figure, stamp: Mapping[str, Any]) -> Any:
    """What keeps a figure from being the paper's, below the canvas: a picture is copied without its
    caption."""
    text = str(stamp.get("footer", ""))
    if text:
        return figure.text(0.5, -0.01, text, ha="center", va="top", fontsize=8, color="0.35")
    return None


def _fix_layout(figure: Figure) -> None:
    """Lay the figure out once, and fix its own legends where the layout puts them.

    They hang on the box of the whole figure, which a tight bounding box replaces: with a footer
    below the canvas they would slide down over it.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for legend in figure.legends:
        box = legend.get_window_extent().transformed(figure.transFigure.inverted())
        legend.borderaxespad = 0
        legend.set_loc("lower left")
        legend.set_bbox_to_anchor((box.x0, box.y0), figure.transFigure)


@dataclass
class Gallery:
    """The figures of one report.

    directory, rows, manifest, warnings: of the report. captioned: what figures show, by name.
    partial: cells are missing, so that a figure may have nothing to show. suffix: one of `FORMATS`.
    size: width and height in inches, 0 for the figure's own; a size that is given is in the file
    name. written: every file with its SHA-256; captions, places (of the paper), needs (of
    cells), sources (file and
    line of the code): by figure; left_out: figures of which nothing is measured.
    """

    directory: Path
    captioned: Mapping[str, str]
    rows: Sequence[Row]
    manifest: Mapping[str, Any]
    warnings: Sequence[str]
    failures: Failures
    partial: bool = False
    suffix: str = "png"
    size: tuple[float, float] = (0.0, 0.0)
    written: dict[Path, str] = field(default_factory=dict)
    captions: dict[str, Caption] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    needs: dict[str, dict[str, Any]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @property
    def files(self) -> dict[str, str]:
        """The files that were written, as a manifest lists them."""
        return {f"figures/{path.name}": digest for path, digest in self.written.items()}

    def draw(self, makers: Figures, say: Callable[[str], None] = lambda line: None) -> None:
        """Draw and save figures. Raises OSError for a full disk."""
        for name, maker in makers.items():
            say(f"figure {name}")
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.=-]*", name):
                error = ValueError("expected a name of letters, digits and _.=-")
                self.failures.add("figure", error, name)
                continue
            before = len(self.failures.records)
            figure = self._made(name, maker)
            if figure is not None:
                self._save(name, maker, figure)
            elif len(self.failures.records) == before:
                self.left_out.append(name)

    def _made(self, name: str, maker: Any) -> Figure | None:
        """The figure; None where it failed, or where nothing of it is measured."""
        with drawn_in(*self.size):
            make = partial(made, maker, partial=self.partial)
            return self.failures.guard("figure", make, None, name)

    def _save(self, name: str, maker: Any, figure: Figure) -> None:
        """Write a figure into figures/, and describe it."""
        folder = self.directory / "figures"
        folder.mkdir(exist_ok=True)
        experiment = str(self.manifest["experiment"])
        title = str(self.manifest["title"] or experiment)
        about = {**stamp(experiment, self.manifest, self.warnings), "figure": name}
        scope = Scope.of(self.manifest)
        if scope.paper and isinstance(maker, Redrawn):
            self.places[name] = maker.place
            if maker.cells:
                self.needs[name] = {"cells": maker.cells, "one_seed": maker.one_seed}
        place = self.places.get(name, "")
        try:
            head(figure, scope.heading(place, title, outcome_on(place, self.rows)))
            path = folder / f"{self._file(name)}.{self.suffix}"
            digest = write(path, image_of(figure, about, self.suffix))
            self._describe(name, maker, noted(figure))
            self.written[path] = digest
        except OSError:  # a full disk
            raise
        except Exception as error:  # text that cannot be typeset, data that cannot be shown
            self.failures.add("figure", error, name)
        finally:
            figure.clear()

    def _file(self, name: str) -> str:
        """fig2, fig2_5in or fig2_5x3in."""
        size = "x".join(f"{length:g}" for length in self.size if length)
        return f"{name}_{size}in" if size else name

    def _describe(self, name: str, maker: Any, note: str) -> None:
        what = self.captioned.get(name) or caption_of(maker) or name.replace("_", " ")
        place = self.places.get(name, "")
        self.captions[name] = caption(what, note, place, self.rows, self.manifest)
        self.sources[name] = source_of(maker)


def caption_of(maker: Any) -> str:
    """What a figure shows: the first paragraph of the docstring of the function that draws it."""
    text = getattr(_drawing(maker), "__doc__", None) or ""
    return " ".join(text.strip().split("\n\n")[0].replace("`", "").split())


def source_of(maker: Any) -> str:
    """File and line of the function that draws a figure; '' for a figure that is made already."""
    code = getattr(_drawing(maker), "__code__", None)
    if code is None:
        return ""
    path = Path(code.co_filename)
    root = Path(__file__).resolve().parents[3]
    name = path.relative_to(root) if path.is_relative_to(root) else path.name
    return f"{name}:{code.co_firstlineno}"


def _drawing(maker: Any) -> Any:
    """The function behind a maker: what a partial holds, or itself; None for a figure."""
    if isinstance(maker, Redrawn):
        maker = maker.draw
    function = getattr(maker, "func", maker)
    return function if callable(function) else None


def made(maker: Any, *, partial: bool) -> Any:
    """The figure of a maker. partial: None where it shows nothing, since what it shows is not
    measured; where nothing is missing, that is an error (NothingToDraw) or a picture without data,
    for the reader to see."""
    try:
        figure = maker() if callable(maker) else maker
    except NothingToDraw:
        if partial:
            return None
        raise
    shown = any(ax.has_data() or ax.texts or ax.tables for ax in figure.axes)
    return figure if shown or not partial else None
