"""Bring the report of some settings up to date: leave it, copy the published one, or make it from
the stored cells."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from runner.contract import SettingError, short
from runner.report.answers.judged import Judged
from runner.report.collect import Collection, Protocol, collect
from runner.report.fingerprint import fingerprint
from runner.report.output.draw import FORMATS
from runner.report.output.manifest import (
    PAGE,
    changed_files,
    is_merged,
    is_published,
    plain,
    read_manifest,
    write,
)
from runner.report.output.page import Page
from runner.report.output.record import record_of
from runner.report.output.write import (
    Report,
    console_lines,
    remove_stale,
    write_manifest,
    write_page,
)
from runner.store import tables
from runner.store.archive import where_published
from runner.store.costs import a_seed
from runner.store.identity import software
from runner.store.job import Job, claim_outputs
from runner.store.store import Stored, merge


@dataclass(frozen=True)
class Configuration:
    """What an experiment is composed from. files: those that the fingerprint of a report covers
    (the YAML file); digest: of all of it, by which a listing knows that a manifest is up to
    date."""

    files: Sequence[Path] = ()
    digest: str = ""


@dataclass(frozen=True)
class Update:
    """The report of one set of settings: what it covers, and its manifest before it is made."""

    judged: Judged
    configuration: Configuration = Configuration()

    @property
    def collection(self) -> Collection:
        return self.judged.collection

    @property
    def folder(self) -> Path:
        return self.collection.place.folder

    @cached_property
    def record(self) -> dict[str, Any]:
        """The manifest, as far as it is known without an analysis."""
        found = self.collection
        experiment = self.collection.job.experiment
        cells: list[Stored] = list(found.cells)
        for of_companion in found.beside.values():
            cells += of_companion
        record = record_of(self.judged)
        digest = fingerprint(experiment, cells, plain(record), self.configuration.files)
        of_a_seed = a_seed(experiment, found.cells)  # times and sizes, which no fingerprint covers
        about = {"conf": self.configuration.digest, "a_seed": of_a_seed}
        return {**record, "fingerprint": digest, **about}

    def unchanged(self) -> dict[str, Any] | None:
        """The manifest of a report with the same fingerprint that is there as it was written; else
        None."""
        return self._state(self.folder, lambda file: False)

    def copy(self, published: Path) -> dict[str, Any] | None:
        """Copy a published report of the same fingerprint, and return its manifest; None where
        there is none."""
        there = self._state(published, lambda file: not is_published(file))
        page = Page.read(published) if there else None
        if there is None or page is None:
            return None
        earlier = read_manifest(self.folder)
        (self.folder / "figures").mkdir(parents=True, exist_ok=True)
        for file in filter(is_published, there["files"]):
            write(self.folder / file, (published / file).read_bytes())
        names = {file.removesuffix(".csv") for file in filter(is_merged, there["files"])}
        for name, frame in merge(self.judged.shown, names).items() if names else ():
            write(self.folder / f"{name}.csv", tables.to_bytes(frame))
        digest = write_page(replace(page, folder=self.folder))
        record = {**there, "files": {**there["files"], PAGE: digest}}
        remove_stale(self.folder, earlier["files"] if earlier else {}, record["files"])
        write_manifest(self.folder, record)
        return record

    def _state(self, folder: Path, may_change: Callable[[str], bool]) -> dict[str, Any] | None:
        earlier = read_manifest(folder)
        if (
            earlier is None
            or earlier["fingerprint"] != self.record["fingerprint"]
            or earlier["report_failures"]
            or not all(map(may_change, changed_files(folder, earlier)))
        ):
            return None
        return earlier

    def anew(self) -> Report:
        """What makes the report from the cells."""
        written = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        record = {**self.record, "software": software(), "written": written}
        return Report(self.folder, record, self.judged.material)


def report(
    jobs: Sequence[Job],
    protocol: Protocol,
    *,
    configuration: Configuration = Configuration(),
    published: Path | None = None,
    any_seed: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[Collection, list[str]]:
    """Bring the report of the settings that `jobs` share up to date.

    Parameters
    ----------
    jobs, protocol, any_seed
        As in `runner.report.collect.collect`.
    configuration
        What the experiment is composed from.
    published
        Folder of the published report of this experiment, if there is one.
    say
        Callback, called before each figure is drawn.

    Returns
    -------
    What the report covers, and lines for the console.
    """
    job = jobs[0]
    collection = collect(jobs, protocol, any_seed)
    damage = [f"  {line}" for line in collection.damage]
    if not collection.cells:
        return collection, [f"{job.name}: {_nothing_stored(collection)}", *damage]
    update = Update(Judged(collection), configuration)
    head = f"{job.name}: {len(collection.cells)} cells, report in {update.folder}"
    if (found := update.unchanged()) is not None:
        return collection, [f"{head}, unchanged", *_found(update.folder, found), *damage]
    claim_outputs(job.outputs)
    if published is not None:
        found = update.copy(published / update.folder.relative_to(job.store.root))
        if found is not None:
            how = "copied from the published results"
            return collection, [f"{head}, {how}", *_found(update.folder, found), *damage]
    made = update.anew().write(say=lambda line: say(f"{job.name}: {line}"))
    lines = [head, *console_lines(update.folder, made), *damage]
    if collection.missing:
        lines.append(f"  missing: {len(collection.missing)} cells{_to_fill(collection)}")
    return collection, lines


def _nothing_stored(collection: Collection) -> str:
    """That no cell of the settings is stored, and what measures or reads them."""
    return f"no stored cells for these settings{_to_fill(collection)}; {where_published()}"


def _to_fill(collection: Collection) -> str:
    return "".join(f"; to fill: {command}" for command in collection.fill_commands)


def _found(folder: Path, record: Mapping[str, Any]) -> list[str]:
    """What a report found: the first sentence of its summary, else its counts; and its page."""
    first = re.split(r"(?<=[\w)%]\.)\s(?=[A-Z])", Page(folder, record).lead, maxsplit=1)[0]
    lines = [f"  {first}"] if first else console_lines(folder, record)[:1]
    return [*lines, f"  page {folder / PAGE}"]


def draw(
    jobs: Sequence[Job],
    protocol: Protocol,
    *,
    figure: str = "",
    suffix: str = "png",
    any_seed: bool = False,
    size: tuple[float, float] = (0.0, 0.0),
) -> list[str]:
    """Draw one figure of a report, or all of them, and nothing else; returns one line for each
    file.

    size: width and height in inches, 0 for the figure's own; figures of another size are no part of
    the report.

    Raises SettingError for a figure or a format that there is not, and where no cell is stored.
    """
    if suffix not in FORMATS:
        raise SettingError(f"figures: expected one of {', '.join(FORMATS)}, found {short(suffix)}")
    judged = Judged(collect(jobs, protocol, any_seed))
    collection = judged.collection
    if not collection.cells:
        raise SettingError(f"{collection.job.name}: {_nothing_stored(collection)}")
    report = Report(collection.place.folder, record_of(judged), judged.material)
    figures = report.findings.figures
    if figure and figure not in figures:
        raise SettingError(f"figure: expected one of {', '.join(figures)}, found {short(figure)}")
    claim_outputs(collection.job.outputs)
    asked = {figure: figures[figure]} if figure else figures
    return report.draw(asked, suffix, size)
