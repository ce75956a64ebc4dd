"""What the pages show, read from the files of a report: nothing is computed here, only joined and
named."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from runner.contract import is_extension
from runner.report.captions import place_of, places
from runner.report.commands import figure_commands, settings_words
from runner.report.labels import row_label
from runner.report.manifest import changed_files, is_merged, read_manifest, read_table
from runner.report.papers import anchors
from runner.report.score import Score
from runner.report.undecided import undecided

T = TypeVar("T")
GOOD = ("exact match", "reproduced", "confirmed")
BAD = ("not reproduced", "refuted")
NEUTRAL = ("minor error", "calibrated", "true by construction", "not comparable")
MEANINGS = {
    "exact match": "same networks and data; every printed digit agrees",
    "reproduced": "within the margin, by an equivalence test",
    "confirmed": "the statement meets its criterion",
    "not reproduced": "outside the margin",
    "refuted": "the statement does not meet its criterion",
    "minor error": "wrong as printed; no result depends on it",
    "inconclusive": "the interval allows both answers",
    "calibrated": "the protocol was chosen to match these numbers; not counted as evidence",
    "true by construction": "could not have come out otherwise; not counted",
    "not comparable": "other data, or a protocol that the paper does not state",
    "not run": "not measured",
}
"""Verdict -> what it says, in the order of tiles."""
ALL = "all five"
"""The name under which experiments on every paper stand."""

SCORE_COLUMNS = frozenset(
    (*(column.name for column in fields(Score)), "margin_reason", "constructed")
)
"""Columns of scorecard.csv that are not keys of the value."""
WORDS = (
    *("verdict", "reason", "source", "note", "significant", "in_our_95", "way", "statistic"),
    *("in_their_prediction", "sign_kept", "margin_reason", "replication"),
)
"""Columns of scorecard.csv that hold text, as the pages show them."""

VECTOR = ("pdf", "svg")
"""Formats of a figure next to PNG."""
PLACES = "Fig|Table|Theorem|Lemma|Proposition|Corollary"
"""What readers look for in a paper."""


def tone(verdict: str) -> str:
    """good, bad, neutral or open: the colour of a verdict, always next to its word and sign."""
    for name, verdicts in (("good", GOOD), ("bad", BAD), ("neutral", NEUTRAL)):
        if verdict in verdicts:
            return name
    return "open"


def in_order(*counts: Mapping[str, int]) -> dict[str, int]:
    """The sum of some counts by verdict, in the order of tiles."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    rest = sorted(set(total) - set(MEANINGS))
    return {verdict: total[verdict] for verdict in (*MEANINGS, *rest) if total[verdict]}


def slug(text: Any) -> str:
    """A word of an anchor: letters, digits and single hyphens; numbers as they are."""
    return re.sub(r"[^\w.+-]+", "-", str(text).strip()).strip("-")


@dataclass(frozen=True)
class Figure:
    """A figure of an experiment: file below the page, caption, text for those who do not see it,
    the command that redraws it, before it the one that measures it where it depends on settings of
    its own, the line of the code that draws it, the figure or table of the paper that it redraws,
    and the same figure as PDF or SVG where that was drawn: format -> file.
    """

    name: str
    file: str
    caption: str
    alt: str
    command: str
    measure: str = ""
    source: str = ""
    place: str = ""
    vector: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """The report of one experiment under one set of settings: its folder, and its files."""

    folder: Path
    manifest: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Page | None:
        """None where there is no report, or one whose files are not those of its manifest."""
        manifest = read_manifest(folder)
        if manifest is None or not all(map(is_merged, changed_files(folder, manifest))):
            return None
        return cls(folder, manifest)

    @property
    def name(self) -> str:
        return str(self.manifest["experiment"])

    @property
    def title(self) -> str:
        return str(self.manifest.get("title", ""))

    @property
    def command(self) -> str:
        """The command that makes this report, if that is not a run of an experiment; such a report
        has no verdicts."""
        return str(self.manifest.get("command", ""))

    @property
    def paper(self) -> str:
        return str(self.manifest.get("paper", ""))

    @property
    def written(self) -> str:
        """The day of the report."""
        return str(self.manifest["written"])[:10]

    @property
    def version(self) -> str:
        """The version of hess-run that made the report, with its commit."""
        by = self.manifest["software"]
        return f"hess-run {by['hess_run']} ({by.get('git_commit', '')})" if "hess_run" in by else ""

    @property
    def complete(self) -> bool:
        return not self.manifest.get("missing")

    def table(self, name: str) -> list[dict[str, str]]:
        """Rows of a CSV file of the report; none where it is not there."""
        return read_table(self.folder / f"{name}.csv")

    @cached_property
    def scores(self) -> list[dict[str, Any]]:
        """Rows of the scorecard, each with its anchor, its keys, and the values of the seeds."""
        rows = self.table("scorecard")
        found = []
        for row in rows:
            keys = {k: v for k, v in row.items() if k not in SCORE_COLUMNS and v not in ("", "nan")}
            columns = {k: v for k, v in row.items() if k in SCORE_COLUMNS}
            numbers = {k: value for k, v in columns.items() if (value := _number(v)) is not None}
            words = {k: row[k] for k in WORDS if row.get(k)}
            values: list[list[Any]] = parsed(row.get("values", ""), [])
            values = [pair for pair in values if pair[1] is not None]
            about = {
                "id": self._anchor(row, keys),
                "keys": keys,
                "label": row_label(keys),
                "undecided": undecided(row),
                "places": sorted(places(row.get("source", ""), PLACES)),
            }
            found.append({**about, **numbers, **words, "values": values})
        return _unique(found)

    @cached_property
    def claims(self) -> list[dict[str, Any]]:
        """Rows of the claims, each with its anchor."""
        paper = anchors().get(self.paper, slug(self.paper).lower())
        kept = (
            "name",
            "statement",
            "where",
            "verdict",
            "statistic",
            "threshold",
            "detail",
            "group",
            "replication",
        )
        found = []
        for row in self.table("claims"):
            content = {k: row[k] for k in kept if row.get(k) not in (None, "", "nan")}
            content["undecided"] = undecided(row)
            ours: dict[str, Any] = {"extension": True} if is_extension(row["where"]) else {}
            ours["places"] = sorted(places(row["where"], PLACES))
            ours |= {key: parsed(row.get(key, ""), {}) for key in ("variants", "other_seeds")}
            found.append(
                {"id": f"{paper}.{slug(self.name)}.{slug(row['name'])}", **content, **ours}
            )
        return _unique(found)

    def _anchor(self, row: Mapping[str, str], keys: Mapping[str, str]) -> str:
        paper = anchors().get(self.paper, slug(self.paper).lower())
        return ".".join(
            [
                paper,
                _place(row.get("source", "")),
                *(slug(keys[k]) for k in sorted(keys, key=_key_order)),
            ]
        )

    def paper_of(self, row: Mapping[str, Any]) -> str:
        """The paper that a row is about; in an audit of all papers its place begins with it."""
        return str(row.get("where", "")).partition(",")[0] if self.paper == ALL else self.paper

    @property
    def verdicts(self) -> dict[str, int]:
        """Verdict -> number of published values and of the paper's statements, in the order of
        tiles."""
        return in_order(
            Counter(row["verdict"] for row in self.table("scorecard")),
            self._statements(extensions=False),
        )

    @property
    def extensions(self) -> dict[str, int]:
        """Verdict -> number of statements that are ours and no paper's, in the order of tiles."""
        return in_order(self._statements(extensions=True))

    def _statements(self, *, extensions: bool) -> Counter[str]:
        rows = (row for row in self.table("claims") if is_extension(row["where"]) == extensions)
        return Counter(row["verdict"] for row in rows)

    @cached_property
    def figures(self) -> list[Figure]:
        """Figures in the order in which the experiment gives them."""
        files = [
            a
            for a in self.manifest["files"]
            if str(a).startswith("figures/") and a.endswith(".png")
        ]
        return [self._figure(str(file)) for file in files if (self.folder / str(file)).is_file()]

    def _figure(self, file: str) -> Figure:
        name = Path(file).stem
        captions, alts = self.manifest.get("captions") or {}, self.manifest.get("alts") or {}
        said = str(captions.get(name) or name.replace("_", " "))
        commands = {"redraw": self.command}
        if not self.command:
            commands = figure_commands(self.manifest, name, settings_words(self.manifest))
        others = {suffix.upper(): str(Path(file).with_suffix(f".{suffix}")) for suffix in VECTOR}
        vector = {kind: other for kind, other in others.items() if (self.folder / other).is_file()}
        return Figure(
            name,
            file,
            said,
            str(alts.get(name) or said),
            commands["redraw"],
            commands.get("measure", ""),
            self.manifest["sources"].get(name, ""),
            place_of(name, said),
            vector,
        )

    @property
    def findings(self) -> str:
        """report.md, '' where there is none."""
        path = self.folder / "report.md"
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    @property
    def lead(self) -> str:
        """The summary of report.md: what stands between its title and its first table."""
        return self.findings.partition("\n## ")[0].partition("\n")[2].strip()

    @property
    def tables(self) -> str:
        """report.md from its first table on."""
        _, mark, rest = self.findings.partition("\n## ")
        return mark + rest

    @property
    def commits(self) -> list[tuple[str, int]]:
        """Commits that measured the cells, with how many each."""
        return Counter(
            str(c.get("git_commit", "")) for c in self.manifest.get("cells", [])
        ).most_common()

    @property
    def cells(self) -> list[dict[str, Any]]:
        """id, parameters and seed of every cell."""
        return [
            {"id": cell.get("id", ""), "params": cell.get("params", {}), "seed": cell.get("seed")}
            for cell in self.manifest.get("cells", [])
        ]


def parsed(text: str, default: T) -> T:
    """The value of a JSON column; `default` for an empty one and for anything of another kind."""
    try:
        found = json.loads(text) if text else default
    except ValueError:
        return default
    return found if isinstance(found, type(default)) else default


def _place(source: str) -> str:
    """'DAG paper, Table 5' -> 'T5', 'Fig. 2' -> 'F2', 'Appendix C' -> 'AppC'."""
    found = re.search(
        r"\b(Table|Fig|Figure|Eq|Appendix|Section|Theorem|Prop)\w*\.?\s*([\w.]+)", source
    )
    if not found:
        return slug(source.rsplit(",", 1)[-1]) or "text"
    letter = {"Table": "T", "Fig": "F", "Figure": "F", "Eq": "E", "Appendix": "App", "Section": "S"}
    return letter.get(found.group(1), found.group(1)) + found.group(2).rstrip(".")


KEY_ORDER = (
    "experiment",
    "arch",
    "network",
    "model",
    "activation",
    "depth",
    "width",
    "checkpoint",
    "distance",
    "metric",
)


def _key_order(key: str) -> tuple[int, str]:
    middle = KEY_ORDER.index(key) if key in KEY_ORDER else KEY_ORDER.index("depth")
    return (middle, key)


def _unique(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with a number behind an anchor that an earlier row bears already."""
    seen: Counter[str] = Counter()
    found = []
    for row in rows:
        seen[row["id"]] += 1
        suffix = f".{seen[row['id']]}" if seen[row["id"]] > 1 else ""
        found.append(row | {"id": row["id"] + suffix})
    return found


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "nan")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
