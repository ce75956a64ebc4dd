"""`hess-run why`: which cells, commits, processors and command a figure, a table, a row or a cell
came from, and whether a table, figure or theorem of a paper holds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from runner.contract import SettingError, did_you_mean, short
from runner.contract.schema import DIGITS
from runner.report.answers.papers import anchors
from runner.report.output.page import Page
from runner.run.answer_lines import lines
from runner.run.command_line import Call
from runner.run.places import of_place, place_name, shown_row
from runner.run.provenance import Answer, of_cell, of_file, of_meta, of_row
from runner.store.archive import report_folders, where_published
from runner.store.store import Store
from runner.store.working import cell_at

EXPECTED = (
    'a file of a report, a place ("Table 5"), or the name of a row, figure, experiment or cell'
)


def why_command(call: Call) -> int:
    """hess-run why FILE[:LINE] | PLACE | NAME [outputs=PATH] [--json]

    Where a figure, a table, a line of a table (the head is line 1), a page or a stored cell came
    from: cells with their parameters and seeds, commits, processors, times, and the commands that
    measure and draw it again. PLACE: a table, figure, theorem, section, remark, equation or
    experiment of a paper: its rows with claim, published and measured value, verdict and reason.
    NAME: of a row, a figure, an experiment or a cell, as this command prints them. A figure that
    was copied elsewhere is looked up below PATH (default outputs) by what it says of itself.

      hess-run why "Fig. 3 of WS"                         (does it hold? files, commands, rows)
      hess-run why "Table 5"                              (of every paper that has one)
      hess-run why "Section 5.1 of DAG"                   ("Experiment 3", "Remark 38", "Eq. 2")
      hess-run why dag.T5.gelu.final.gap_global           (the # of a row in the pages)
      hess-run why dag.T5                                 (its rows)
      hess-run why outputs/ws_bound/figures/fig02_bound_and_eigenvalue.png
      hess-run why outputs/ws_bound/scorecard.csv:4
    """
    answers = why(call.words[0], call.keys.folder)
    if call.json:
        print(json.dumps([answer.record() for answer in answers], indent=1))
    else:
        print("\n".join(lines(answers)))
    return 0


def why(word: str, outputs: Path = Path("outputs")) -> list[Answer]:
    """Answers about FILE, FILE:LINE, a place of a paper, or a name.

    Raises SettingError for a file that no report or cell stands behind, and for anything else that
    is not known.
    """
    path, line = _file_and_line(word)
    if os.path.exists(path):
        path = path.resolve()
        if (cell := cell_at(path)) is not None:
            return [of_cell(*cell)]
        return [of_file(path, line, outputs)]
    place = place_name(word)
    pages = [page for page in map(Page.read, report_folders(outputs)) if page is not None]
    if place is not None:
        return of_place(place, pages)
    name = word.rpartition("#")[2].strip()
    answers = _of_rows(name, pages) or _of_names(name, pages, outputs)
    if answers:
        return answers
    raise SettingError(_unknown(word, name, pages, outputs))


def _file_and_line(word: str) -> tuple[Path, int]:
    """(file, line), line 0 where none is given."""
    head, colon, tail = word.rpartition(":")
    if not os.path.exists(word) and colon and DIGITS.fullmatch(tail):
        return Path(head), int(tail)
    return Path(word), 0


def _of_rows(name: str, pages: Sequence[Page]) -> list[Answer]:
    """The evidence of one row; of the beginning of several names, these rows."""
    below: list[dict[str, str]] = []
    for page in pages:
        for row in page.rows:
            if row.id == name:
                return [of_row(page.folder, page, row)]
            if row.id.startswith(f"{name}."):
                below.append(shown_row(row))
    title = f"{name}: {len(below)} rows; hess-run why ROW says more of each"
    if below:
        return [Answer(title, {"rows": below})]
    return []


def _of_names(name: str, pages: Sequence[Page], outputs: Path) -> list[Answer]:
    """The report of an experiment or of some settings, every figure of a name, or a cell."""
    answers = []
    for page in pages:
        if name in (page.name, page.manifest["settings_key"]):
            answers.append(of_file(page.folder, 0, outputs))
        for figure in page.figures:
            if figure.name == name:
                answers.append(of_file(page.folder / figure.file, 0, outputs))
        if any(cell["id"] == name for cell in page.manifest["cells"]):
            cell = Store(outputs, page.name).find(name)
            if cell is not None:
                answers += [of_meta(cell.meta, name)]
    return answers


def _unknown(word: str, name: str, pages: Sequence[Page], outputs: Path) -> str:
    """What was expected in place of a word."""
    paper = name.partition(".")[0]
    with_rows = {anchors().get(page.paper, "") for page in pages}
    if paper in {*anchors().values()} - with_rows:
        return (
            f"why: no report below {short(outputs)} has rows of this paper; make them with "
            f"hess-run report; {where_published()}"
        )
    known = []
    for page in pages:
        known += [page.name, *(figure.name for figure in page.figures)]
        known += [row.id for row in page.rows]
    return f"why: expected {EXPECTED}; found {short(word)}{did_you_mean(name, known)}"
