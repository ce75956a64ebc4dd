"""HTML of the reports: one page per experiment and one above them, without scripts, fonts or files from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any
from urllib.parse import quote

MARKS = {
    "confirmed": "good",
    "identical": "good",
    "reproduced": "good",
    "refuted": "bad",
    "not reproduced": "bad",
}
SIGNS = {"good": "✓", "bad": "✗", "open": "○"}

CSS = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; color: #1b1b1b;
  background: #fff; }
h1 { margin-bottom: .2rem; } h2 { margin-top: 2.2rem; border-bottom: 1px solid #ddd; }
.lead { color: #555; margin-top: 0; }
.warning { background: #fff1d6; border-left: 6px solid #d98a00; padding: .6rem 1rem; margin: .8rem 0; }
.error { background: #fde8e8; border-left: 6px solid #b00000; padding: .6rem 1rem; margin: .8rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #e5e5e5; text-align: left; vertical-align: top; }
th { background: #f5f5f5; position: sticky; top: 0; } td.number { text-align: right; white-space: nowrap; }
.good { color: #005a38; font-weight: 600; } .bad { color: #a00000; font-weight: 600; } .open { color: #666; }
td.good, td.bad, td.open { white-space: nowrap; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(30rem, 100%), 1fr)); gap: 1.2rem; }
figure { margin: 0; } figure img { max-width: 100%; border: 1px solid #eee; } figcaption { font-size: 13px; }
code, pre { font: 13px/1.4 ui-monospace, monospace; background: #f5f5f5; } pre { padding: .6rem; overflow-x: auto; }
summary { cursor: pointer; }
"""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A table of the page: heading, columns, rows, and a line above them. folded: closed until clicked."""

    heading: str
    columns: Sequence[str]
    rows: Sequence[Mapping[str, Any]]
    lead: str = ""
    folded: bool = False


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the page of one experiment shows."""

    name: str
    title: str = ""
    lead: str = ""
    warnings: Sequence[str] = ()
    errors: Sequence[str] = ()
    missing: Sequence[str] = ()
    commands: Sequence[str] = ()
    notes: Sequence[str] = ()
    sections: Sequence[Section] = ()
    figures: Sequence[str] = ()
    files: Mapping[str, int] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)


def report_page(report: Report) -> str:
    """The page of one experiment; figures and files are linked relative to it."""
    parts = [
        f"<h1>{escape(report.name)}</h1>",
        f'<p class="lead">{escape(" · ".join(t for t in (report.title, report.lead) if t))}</p>',
        *(f'<div class="warning">{escape(text)}</div>' for text in report.warnings),
        *(f'<div class="error">{escape(text)}</div>' for text in report.errors),
        _missing(report.missing, report.commands),
        _listing("Findings", report.notes),
        *(_section(section) for section in report.sections),
        _figures(report.figures),
        _files(report.files),
        _origin(report.origin),
    ]
    return _document(report.name, parts)


def overview_page(title: str, warnings: Sequence[str], sections: Sequence[Section]) -> str:
    """The page above all experiments; a cell that is a `Link` becomes one."""
    parts = [f"<h1>{escape(title)}</h1>", *(f'<div class="error">{escape(w)}</div>' for w in warnings)]
    return _document(title, [*parts, *(_section(section) for section in sections)])


@dataclass(frozen=True)
class Link:
    """A cell of a table that leads somewhere."""

    text: str
    target: str


def counts_line(counts: Mapping[str, int]) -> str:
    """'3 reproduced, 1 undecided', without the zeros."""
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number) or "none"


def _document(title: str, parts: Iterable[str]) -> str:
    head = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head><body>"
    )
    return "\n".join([head, *(part for part in parts if part), "</body></html>"]) + "\n"


def _missing(missing: Sequence[str], commands: Sequence[str]) -> str:
    if not missing:
        return ""
    shown = [*missing[:30], *([f"… and {len(missing) - 30} more"] if len(missing) > 30 else [])]
    how = f"<p>To fill them:</p><pre>{escape(chr(10).join(commands))}</pre>" if commands else ""
    listed = "".join(f"<li>{escape(label)}</li>" for label in shown)
    cells = "1 cell is" if len(missing) == 1 else f"{len(missing)} cells are"
    return (
        f'<div class="warning"><strong>Incomplete: {cells} not measured.</strong>{how}'
        f"<details><summary>Which</summary><ul>{listed}</ul></details></div>"
    )


def _listing(heading: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f"<h2>{escape(heading)}</h2><ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _section(section: Section) -> str:
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in section.columns)
    body = "\n".join(
        "<tr>" + "".join(_cell(name, row.get(name, "")) for name in section.columns) + "</tr>" for row in section.rows
    )
    table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'
    if not section.rows:
        table = "<p>None.</p>"
    if section.folded and section.rows:
        table = f"<details><summary>{_rows(len(section.rows))}</summary>{table}</details>"
    lead = f"<p>{escape(section.lead)}</p>" if section.lead else ""
    return f"<h2>{escape(section.heading)}</h2>{lead}{table}"


def _cell(name: str, value: Any) -> str:
    if isinstance(value, Link):
        return f'<td><a href="{quote(value.target)}">{escape(value.text)}</a></td>'
    if name == "verdict":
        mark = MARKS.get(str(value), "open")
        return f'<td class="{mark}">{SIGNS[mark]} {escape(str(value))}</td>'
    if isinstance(value, float):
        return f'<td class="number">{"" if value != value else f"{value:.4g}"}</td>'
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td class="number">{value}</td>'
    return f"<td>{escape(str(value))}</td>"


def _rows(number: int) -> str:
    return "1 row" if number == 1 else f"{number} rows"


def _figures(names: Sequence[str]) -> str:
    if not names:
        return ""
    shown = "\n".join(
        f'<figure><a href="figures/{quote(name)}.png"><img loading="lazy" src="figures/{quote(name)}.png" '
        f'alt="{escape(name)}"></a><figcaption>{escape(name)} · <a href="figures/{quote(name)}.pdf">PDF</a>'
        "</figcaption></figure>"
        for name in names
    )
    return f'<h2>Figures</h2>\n<div class="figures">\n{shown}\n</div>'


def _files(files: Mapping[str, int]) -> str:
    if not files:
        return ""
    listed = "".join(
        f'<li><a href="{quote(name)}">{escape(name)}</a> ({_rows(rows)})</li>' for name, rows in files.items()
    )
    return f"<h2>Tables</h2><ul>{listed}</ul>"


def _origin(origin: Mapping[str, Any]) -> str:
    rows = "".join(f"<tr><th>{escape(str(k))}</th><td>{escape(str(v))}</td></tr>" for k, v in origin.items())
    return f"<h2>Origin</h2><table>{rows}</table>" if rows else ""
