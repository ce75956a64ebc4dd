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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.contract import Figures, Redrawn
from runner.report.answers.findings import Failures
from runner.report.answers.rows import Row
from runner.report.answers.scope import Scope
from runner.report.figures import NothingToDraw, drawn_in
from runner.report.figures.annotations import head, noted
from runner.report.figures.captions import Caption, caption, outcome_on, shows
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


@dataclass(frozen=True)
class Drawn:
    """A figure that was drawn: its file with its SHA-256, its caption, the paper's place that it
    redraws ("" for none), the cells that it needs, and file and line of the code."""

    path: Path
    digest: str
    caption: Caption
    place: str
    needs: Mapping[str, Any]
    source: str


@dataclass
class Gallery:
    """The figures of one report.

    directory, rows, manifest, failures: of the report. captioned: what figures show, by name.
    suffix: one of `FORMATS`. size: width and height in inches, 0 for the figure's own; a size that
    is given is in the file name. drawn: by name; left_out: figures of which nothing is measured.
    """

    directory: Path
    captioned: Mapping[str, str]
    rows: Sequence[Row]
    manifest: Mapping[str, Any]
    failures: Failures
    suffix: str = "png"
    size: tuple[float, float] = (0.0, 0.0)
    drawn: dict[str, Drawn] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @property
    def files(self) -> dict[str, str]:
        """The files that were written, as a manifest lists them."""
        return {f"figures/{one.path.name}": one.digest for one in self.drawn.values()}

    def record(self) -> dict[str, Any]:
        """What a manifest says of the figures."""
        about = self.drawn.items()
        return {
            "captions": {name: one.caption.text for name, one in about},
            "alts": {name: one.caption.alt for name, one in about},
            "places": {name: one.place for name, one in about if one.place},
            "needs": {name: one.needs for name, one in about if one.needs},
            "sources": {name: one.source for name, one in about},
            "left_out": self.left_out,
        }

    def draw(self, makers: Figures, say: Callable[[str], None] = lambda line: None) -> None:
        """Draw and save figures. Raises OSError for a full disk."""
        for name, maker in makers.items():
            say(f"figure {name}")
            try:
                self._draw(name, maker)
            except OSError:  # a full disk
                raise
            # an experiment's code, text that cannot be typeset, data that cannot be shown
            except Exception as error:
                self.failures.add("figure", error, name)

    def _draw(self, name: str, maker: Any) -> None:
        """Draw a figure, write it into figures/, and describe it."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.=-]*", name):
            raise ValueError("expected a name of letters, digits and _.=-")
        with drawn_in(*self.size):
            figure = made(maker, partial=bool(self.manifest["missing"]))
        if figure is None:
            self.left_out.append(name)
            return
        scope = Scope.of(self.manifest)
        redrawn = maker if isinstance(maker, Redrawn) else Redrawn("", maker)
        place = redrawn.place if scope.paper else ""
        drawn = [row for row in self.rows if shows(redrawn, row)]
        title = self.manifest["title"] or self.manifest["experiment"]
        head(figure, scope.heading(place, title, outcome_on(place, drawn)))
        path = self.directory / "figures" / f"{self._file(name)}.{self.suffix}"
        path.parent.mkdir(exist_ok=True)
        try:
            image = image_of(figure, {**stamp(self.manifest), "figure": name}, self.suffix)
            what = self.captioned.get(name) or caption_of(maker) or name.replace("_", " ")
            said = caption(
                what, noted(figure), replace(redrawn, place=place), self.rows, self.manifest
            )
        finally:
            figure.clear()
        needs = {"cells": redrawn.cells, "one_seed": redrawn.one_seed} if redrawn.cells else {}
        digest = write(path, image)
        self.drawn[name] = Drawn(path, digest, said, place, needs, source_of(maker))

    def _file(self, name: str) -> str:
        """fig2, fig2_5in or fig2_5x3in."""
        size = "x".join(f"{length:g}" for length in self.size if length)
        return f"{name}_{size}in" if size else name


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
