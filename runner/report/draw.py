"""Draw the figures of a report, one at a time, each with its caption; what cannot be drawn costs nothing else.

A figure whose tables, settings, code and footer are those that it was drawn from is left as it is. Its caption is
worded anew, from what was read off it then: verdicts may have changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from runner.contract import Figures
from runner.report import drawing, saving
from runner.report.captions import Caption, caption
from runner.report.figures import NothingToDraw
from runner.report.findings import Failures, Findings
from runner.report.provenance import stamp
from runner.report.sources import Sources
from runner.report.watched import Held


@dataclass(frozen=True)
class Drawn:
    """A figure as a manifest remembers it. made_from: hash of its sources, '' where they are not known; depends: every
    table that it may depend on, as far as they hide behind others; tables: those that its caption names."""

    made_from: str
    depends: Sequence[str]
    tables: Sequence[str]
    drawing: drawing.Drawing

    @classmethod
    def of(cls, record: Any) -> Drawn | None:
        """From a manifest; None for anything else."""
        try:
            return cls(
                str(record["made_from"]),
                [str(name) for name in record["depends"]],
                [str(name) for name in record["tables"]],
                drawing.Drawing(**record["drawing"]),
            )
        except (KeyError, TypeError):
            return None

    def record(self) -> dict[str, Any]:
        """For a manifest."""
        return {**asdict(self), "depends": list(self.depends), "tables": list(self.tables)}


@dataclass
class Gallery:
    """The figures of one report: those drawn before and now.

    folder: where they lie. manifest, warnings: of the report. sources: None where every figure is to be drawn.
    earlier: records of the last report by figure. partial: cells are missing, so that a figure may have nothing to
    show. written: every file; captions, records: by figure; left_out: figures of which nothing is measured.
    """

    folder: Path
    found: Findings
    manifest: Mapping[str, Any]
    warnings: Sequence[str]
    failures: Failures
    sources: Sources | None = None
    earlier: Mapping[str, Any] = field(default_factory=dict)
    pdf: bool = False
    partial: bool = False
    written: list[Path] = field(default_factory=list)
    captions: dict[str, Caption] = field(default_factory=dict)
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def draw(self, makers: Figures, say: Callable[[str], None] = lambda line: None, *, anew: bool = False) -> None:
        """Draw and save what is not up to date; anew: all of it. Raises OSError for a full disk."""
        for name, maker in makers.items():
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.=-]*", name):
                self.failures.add("figure", ValueError("expected a name of letters, digits and _.=-"), name)
                continue
            before = None if anew or self.pdf else Drawn.of(self.earlier.get(name))
            if before is None or not self._as_before(name, maker, before):
                say(f"figure {name}")
                self._draw(name, maker)

    def _as_before(self, name: str, maker: Any, before: Drawn) -> bool:
        """Whether the figure is there and would be drawn from the same things; then its caption is worded."""
        file = self.folder / f"{name}.png"
        held = Held(maker, self._tables())
        if not before.made_from or before.made_from != self._key(name, before.depends, held) or not file.is_file():
            return False
        self.written.append(file)
        self._keep(name, maker, before)
        return True

    def _draw(self, name: str, maker: Any) -> None:
        found = self.found
        held = Held(maker, self._tables())
        with found.log.noting() as asked:
            before = len(self.failures.records)
            figure = self.failures.guard("figure", lambda: made(maker, partial=self.partial), None, name)
        if figure is None:
            self.left_out += [name] * (len(self.failures.records) == before)
            return
        depends = asked | held.tables | found.asked_early | (found.asked_for_figures if held.opaque else set())
        named = asked | held.tables | held.alike
        self.folder.mkdir(exist_ok=True)
        try:
            self.written += saving.save(figure, self.folder / name, self._stamp(name, depends), pdf=self.pdf)
            read = drawing.read(figure)
            tables = sorted(named & self._tables().keys())
            self._keep(name, maker, Drawn(self._key(name, depends, held), sorted(depends), tables, read))
        except OSError:  # a full disk is no fault of the figure
            raise
        except Exception as error:  # text that cannot be typeset, data that cannot be shown
            self.failures.add("figure", error, name)
        figure.clear()

    def _keep(self, name: str, maker: Any, drawn: Drawn) -> None:
        rows = {"claims": self.found.claims, "scorecard": self.found.scorecard}
        what = self.found.captions.get(name) or caption_of(maker)
        of = self._of(drawn.depends)
        self.captions[name] = caption(name, what, drawn.drawing, rows, of, tables=drawn.tables, bars=self.found.bars)
        self.records[name] = drawn.record()

    def _of(self, depends: Sequence[str] | set[str]) -> Mapping[str, Any]:
        """The manifest, with the cells and seeds that these tables come from."""
        return self.sources.behind(self.manifest, depends) if self.sources else self.manifest

    def _stamp(self, name: str, depends: Sequence[str] | set[str]) -> dict[str, Any]:
        of = self._of(depends)
        return {**stamp(str(of.get("experiment", "")), of, self.warnings), "figure": name}

    def _key(self, name: str, depends: Sequence[str] | set[str], held: Held) -> str:
        if self.sources is None:
            return ""
        return self.sources.key(names=depends, stamp=self._stamp(name, depends), held=held.values)

    def _tables(self) -> dict[str, Any]:
        found = self.found.watched.silent()
        for companion in self.found.companions.values():
            found |= companion.silent()
        return found


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
