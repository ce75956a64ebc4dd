"""From merged tables to a report: CSV files, statistics, claims, scorecard, figures, findings and one HTML page.

Order matters. The experiment's analysis is asked once, tables are on disk before anything is drawn, and whatever the
experiment's own code raises (a figure, the claims, the tests) is recorded and shown, and loses nothing else. Every file
appears by one rename.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.contract import CLAIM_VERDICTS, Experiment, Tables, is_extension
from runner.contract.records import CERTIFICATE, certificate_lines
from runner.files import MARKER, is_listed, remove, write_bytes
from runner.report import compare
from runner.report.collect import said_of
from runner.report.draw import Gallery
from runner.report.findings import Failures, Findings, ask
from runner.report.formatting import PARTIAL, report_text, summary, summary_path
from runner.report.manifest import (
    ANSWERS,
    NAME,
    checksums,
    is_merged,
    not_run_files,
    plain,
    read_manifest,
    start_fingerprint,
    warnings_of,
)
from runner.report.page import Page
from runner.report.site import build_experiment, build_start
from runner.store import tables

if TYPE_CHECKING:
    import pandas as pd


DIGITS = "%.9g"
"""Format of floats in the tables that an analysis gives: fewer digits than those in which two machines may differ."""


def console_lines(directory: Path, record: Mapping[str, Any]) -> list[str]:
    """What the report in `directory` holds, from its manifest, for the console."""
    ours = record["extensions"]
    papers = {verdict: count - ours.get(verdict, 0) for verdict, count in record["claims"].items()}
    lines = ["  profile=quick: nothing is scored"]
    if record.get("profile") != "quick":
        lines = [f"  statements: {counts_line(papers)}"]
        lines += [f"  extensions: {counts_line(ours)}"] if any(ours.values()) else []
        lines += [f"  published numbers: {counts_line(record['scorecard'])}"]
    figures, merged = len(record["captions"]), sum(map(is_merged, record["files"]))
    lines += [f"  {figures} figures, {merged} tables, page {directory / 'index.html'}"]
    if record["left_out"]:
        lines += [f"  not drawn, nothing of them is measured: {', '.join(record['left_out'])}"]
    return lines + [
        f"  failed: {failure}" for failure in Failures(record["report_failures"]).lines()
    ]


def write_report(
    directory: Path,
    name: str,
    experiment: Experiment,
    tables_by_name: Mapping[str, pd.DataFrame],
    manifest: Mapping[str, Any],
    missing: Sequence[str] = (),
    reference: Path | None = None,
    *,
    beside: Mapping[str, Tables] | None = None,
    only_figure: str = "",
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Write the report of one experiment into `directory` and return its manifest.

    tables_by_name: merged over cells and seeds. manifest: what the report is made from (`collect.manifest`);
    missing: labels of the cells that are not measured; reference: the paper's values, if any; only_figure: draw no
    other; say: callback, called before each figure is drawn. Raises ValueError for a table name that the report needs
    itself, OSError when a file cannot be written.
    """
    taken = [table for table in tables_by_name if table in ANSWERS]
    if taken:
        raise ValueError(
            f"{name}: expected table names other than {', '.join(ANSWERS)}, found {taken[0]}"
        )
    reason = str(manifest.get("not_comparable") or "; ".join(said_of(manifest)))
    failures = Failures()
    found = ask(experiment, tables_by_name, reference, reason, failures, beside or {})

    directory.mkdir(parents=True, exist_ok=True)
    earlier = read_manifest(directory)
    trust = _certificates(experiment, manifest, tables_by_name)
    warnings = warnings_of(manifest, missing)
    text = _report_text(name, experiment, found, tables_by_name, failures, warnings, trust)
    written = _write_answers(directory, tables_by_name, found, text)
    gallery = Gallery(directory, found, manifest, warnings, failures, partial=bool(missing))
    gallery.draw({k: v for k, v in found.figures.items() if only_figure in ("", k)}, say)
    files = [*written, *(f"figures/{path.name}" for path in gallery.written)]
    remove_stale(directory, earlier["files"] if earlier else {}, files)
    counts = Counter(found.claims["verdict"])
    ours = Counter(found.claims["verdict"][found.claims["where"].map(is_extension).astype(bool)])
    record = {
        **manifest,
        "experiment": name,
        "missing": list(missing),
        "claims": {verdict: counts[verdict] for verdict in CLAIM_VERDICTS},
        "extensions": {verdict: ours[verdict] for verdict in CLAIM_VERDICTS if ours[verdict]},
        "scorecard": compare.summarise(found.scorecard),
        "report_failures": failures.records,
        "certificates": trust,
        "notes": list(found.notes),
        "captions": {figure: made.text for figure, made in gallery.captions.items()},
        "alts": {figure: made.alt for figure, made in gallery.captions.items()},
        "sources": gallery.sources,
        "left_out": gallery.left_out,
        "files": checksums(directory, files),
    }
    write_manifest(directory, record)
    write_page(directory, warnings)
    return record


def write_manifest(directory: Path, record: Mapping[str, Any]) -> None:
    """manifest.json of a report, by one rename."""
    write_bytes(directory / NAME, (json.dumps(plain(record), indent=1) + "\n").encode())


def _certificates(
    experiment: Experiment, manifest: Mapping[str, Any], merged: Mapping[str, pd.DataFrame]
) -> list[str]:
    """What is to be said about the certificates of the cells; nothing where there are no cells."""
    carried = [bool(cell.get("certificate")) for cell in manifest.get("cells", [])]
    rows = merged[CERTIFICATE].to_dict("records") if CERTIFICATE in merged else []
    return certificate_lines(carried, rows, experiment.uncertified) if carried else []  # type: ignore[arg-type]


def _report_text(
    name: str,
    experiment: Experiment,
    found: Findings,
    measured: Mapping[str, pd.DataFrame],
    failures: Failures,
    warnings: Sequence[str],
    trust: Sequence[str],
) -> str:
    """report.md; where cells are missing, with a summary only if it is written for partial results."""
    path, text = summary_path(name, experiment), ""
    content = path.read_text(encoding="utf-8") if path is not None else ""
    incomplete = all(warning.startswith("incomplete") for warning in warnings)
    if content and (not warnings or (incomplete and PARTIAL in content)):
        text = failures.guard(
            "summary", lambda: summary(content, found.claims, found.scorecard, measured), ""
        )
    sentences = [
        line if line.endswith(".") else f"{line[0].upper()}{line[1:]}." for line in warnings
    ]
    quick = next((line for line in sentences if line.startswith("Profile=quick")), "")
    answers = (found.claims, found.scorecard, found.notes)
    return report_text(experiment.title or name, text, *answers, sentences, trust, quick)


def _write_answers(
    directory: Path, merged: Mapping[str, pd.DataFrame], found: Findings, text: str
) -> list[str]:
    """Write tables and texts; returns their file names."""
    for table, frame in merged.items():
        tables.write(frame, directory / f"{table}.csv")
    for table, frame in found.tables.items():
        content = frame.to_csv(index=False, float_format=DIGITS, na_rep="nan", lineterminator="\n")
        write_bytes(directory / f"{table}.csv", content.encode())
    texts = {Path(document).name: text for document, text in found.documents.items()}
    texts.setdefault("report.md", text)
    for document, text in texts.items():
        write_bytes(directory / document, text.encode())
    return [*(f"{table}.csv" for table in (*merged, *found.tables)), *texts]


def write_page(directory: Path, warnings: Sequence[str] = ()) -> None:
    """index.html of a report, from its files. Raises OSError when it cannot be written."""
    page = Page.read(directory)
    if page is not None:
        up = "../index.html" if (directory.parent / MARKER).exists() else "../../index.html"
        build_experiment(page, [w[0].upper() + w[1:] + "." for w in warnings], up=up)


def write_overview(root: Path) -> Path:
    """The start page of an output folder, from the reports below it.

    It says what it was made from, and is unchanged while that is the same.
    """
    origin, page = start_fingerprint(root), root / "index.html"
    if page.is_file() and (root / "rows.js").is_file() and origin.encode() in page.read_bytes():
        return page
    try:
        errata = tables.read_json(root / "paper_audit" / "errata.json")
    except (OSError, ValueError):
        errata = []
    return build_start(root, not_run(root), errata if isinstance(errata, list) else [], origin)


def not_run(root: Path) -> dict[str, str]:
    """What was not run, with the reason, as the files not_run.md say: lines of '- name: reason'."""
    lines = [
        line
        for path in not_run_files(root)
        for line in path.read_text("utf-8", "replace").splitlines()
    ]
    found = (re.fullmatch(r"- `?([^:`]+)`?: (.+)", line) for line in lines)
    return {match.group(1): match.group(2) for match in found if match}


def counts_line(counts: Mapping[str, int]) -> str:
    """'3 confirmed, 1 refuted', or 'none'."""
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count) or "none"


def remove_stale(directory: Path, earlier: Mapping[str, str], now: Iterable[str]) -> None:
    """Remove files that the earlier report made and this one did not, unless they were changed since.

    earlier: file -> SHA-256, as in the manifest.
    """
    gone = {file: earlier[file] for file in set(earlier) - set(now)}
    for file in gone:
        remove(directory / file, is_listed(directory, gone))
