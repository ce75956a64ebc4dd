"""The verdicts of a folder of reports, by the row that reached them, and where two of them speak of
one print."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from experiments.paper_audit.papers import clauses, keys
from experiments.printed import TEXTS, Said, said, statements
from runner.contract import Statement, is_extension
from runner.report.manifest import read_manifest, read_table
from runner.report.reference import BIBLIOGRAPHIC, VALUE_COLUMNS
from runner.run.config import experiment_names
from tests.experiments.paper_audit.places import covered

SAME = ("the same as a number", "the same in the audit")
"""How experiments/reference/texts says that a line speaks of what the line before it speaks of."""
ALIKE = {
    "holds": ("exact match", "reproduced", "confirmed", "holds"),
    "fails": ("not reproduced", "refuted", "wrong"),
    "minor error": ("minor error",),
    "open": ("inconclusive",),
    "constructed": ("true by construction",),
}
"""Words of scorecards, claims and the audit for one finding. Every other word (calibrated, not
comparable, not run, not checked) decides nothing, so that it contradicts nothing."""
NUMBERED = ("Theorem", "Proposition", "Corollary", "Lemma", "Remark", "Fact")
ROUGH = 0.1
"""A printed number of a larger relative rounding agrees with values of anything."""


def finding(verdict: str) -> str:
    return next((name for name, words in ALIKE.items() if verdict in words), "")


def contradict(verdicts: Iterable[str]) -> bool:
    """Whether these cannot all be said of one print. What is so by construction may be said to
    hold."""
    found = {f for f in map(finding, verdicts) if f}
    return len(found) > 1 and found != {"holds", "constructed"}


def rows(path: Path) -> list[dict[str, str]]:
    return read_table(path)


def number(text: str) -> float:
    return float(text) if text.strip() else math.nan


@dataclass(frozen=True)
class Reports:
    """The reports below a folder."""

    outputs: Path
    lists: Mapping[str, tuple[Said, ...]] = field(
        default_factory=lambda: {path.stem: said(path.stem) for path in sorted(TEXTS.glob("*.csv"))}
    )

    @cached_property
    def claims(self) -> dict[str, dict[str, dict[str, str]]]:
        """experiment -> name -> row."""
        of_experiment = {}
        for name in experiment_names():
            table = rows(self.outputs / name / "claims.csv")
            of_experiment[name] = {row["name"]: row for row in table}
        return of_experiment

    @cached_property
    def scores(self) -> dict[str, list[dict[str, str]]]:
        return {e: rows(self.outputs / e / "scorecard.csv") for e in experiment_names()}

    def of(self, s: Said) -> list[str]:
        """The verdicts of what a line points at; none where the experiment was not run."""
        if s.kind == "number":
            found = [r for r in self.scores[s.experiment] if r["metric"] == s.row]
            # A print that was also run as described is counted apart there: another way, another
            # verdict.
            ways = {r.get("way", "") for r in found}
            if len(ways) > 1:
                found = [r for r in found if r.get("way") != "as described"]
            return [
                r["verdict"]
                for r in found
                if not s.value or number(r["paper_mean"]) == float(s.value)
            ]
        row = self.claims.get(s.experiment, {}).get(s.row)
        return [row["verdict"]] if row else []

    def groups(self) -> Iterator[tuple[Said, ...]]:
        """Lines of a text that speak of one print."""
        for lines in self.lists.values():
            group: list[Said] = []
            for line in lines:
                if line.statement not in SAME:
                    yield tuple(group)
                    group = []
                group.append(line)
            yield tuple(group)

    def quarrels(self) -> list[str]:
        """Prints that two rows decide differently."""
        told = []
        for group in self.groups():
            verdicts = {f"{s.experiment} {s.row} {s.value}".strip(): self.of(s) for s in group}
            if contradict(itertools.chain.from_iterable(verdicts.values())):
                told.append(f"{group[0].place}: {verdicts}")
        return told + self.rows_twice()

    def rows_twice(self) -> list[str]:
        """Numbers of one table, or statements in the same words, that two experiments decide
        differently."""
        found: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
        for experiment, scores in self.scores.items():
            for r in scores:
                value = r["paper_mean"] if r["paper_mean"] not in ("", "nan") else r["upper_bound"]
                keys = sorted(
                    f"{k}={v}" for k, v in r.items() if k in keys_of(r) and v not in ("", "nan")
                )
                found[(r["source"], value, *keys)][f"{experiment} {' '.join(keys)}"] = r["verdict"]
        for experiment, claims in self.claims.items():
            for r in claims.values():
                if not is_extension(r["where"]):
                    found[(paper_of(experiment), r["where"], r["statement"])][experiment] = r[
                        "verdict"
                    ]
        return [
            f"{key}: {by}" for key, by in found.items() if len(by) > 1 and contradict(by.values())
        ]

    def unlinked(self) -> list[tuple[str, str, str]]:
        """(experiment, statement, what) for pairs of rows that may speak of one print and stand in
        no common group."""
        linked = {
            frozenset(((a.experiment, a.row), (b.experiment, b.row)))
            for group in self.groups()
            for a, b in itertools.combinations(group, 2)
        }
        audited = {}
        for key in keys():
            audited[key] = [(clause.id, set(covered(clause.place))) for clause in clauses(key)]
        found = []
        for experiment in self.claims:
            for name, s in printed(experiment).items():
                for metric in sorted(self.metrics_at(experiment, s)):
                    if frozenset(((experiment, name), (experiment, metric))) not in linked:
                        found.append((experiment, name, metric))
                places = {p for p in covered(s.where) if p[0] in NUMBERED}
                of_paper = audited.get(paper_of(experiment), [])
                meeting = [i for i, named in of_paper if places & named]
                own = [
                    i
                    for i in meeting
                    if frozenset(((experiment, name), ("paper_audit", i))) in linked
                ]
                found += [(experiment, name, i) for i in meeting if not own]
        return found

    def metrics_at(self, experiment: str, s: Statement) -> set[str]:
        """Metrics of the experiment's scorecard with a printed value that is the statement's number
        or limit."""
        values = [(s.number, s.rounding)] if not math.isnan(s.number) else []
        values += [(v, 0.0) for v in (s.low, s.high) if math.isfinite(v) and v not in (0, 1)]
        found = set()
        for value, half in values:
            if half <= ROUGH * abs(value):
                near = half * 1.0001 + 1e-12 * abs(value)
                for r in self.scores[experiment]:
                    if abs(number(r["paper_mean"]) - value) <= near:
                        found.add(r["metric"])
        return found


def keys_of(row: Mapping[str, str]) -> set[str]:
    """The columns of a scorecard that tell its values apart."""
    columns = list(row)
    return set(columns[: columns.index("paper_mean")]) - set(VALUE_COLUMNS) - set(BIBLIOGRAPHIC)


def paper_of(experiment: str) -> str:
    """Key of the audited paper that an experiment is about."""
    folder = {
        "attention": "attention",
        "scalar": "scalar",
        "ws": "ws_bound",
        "hsr": "hsr",
        "exp": "dag",
    }
    return next((key for start, key in folder.items() if experiment.startswith(start)), experiment)


def printed(experiment: str) -> dict[str, Statement]:
    """The statements of a paper that an experiment decides; no extension."""
    try:
        found = statements(experiment)
    except ValueError:
        return {}
    return {name: s for name, s in found.items() if not is_extension(s.where)}


def findings(outputs: Path) -> Iterator[tuple[str, str, str]]:
    """(experiment, line, what is wrong) where report.md lists a statement under another verdict
    than claims.csv; the sixth column, if any, is the replication."""
    for path in sorted(outputs.glob("*/report.md")):
        said_of = {
            (r["statement"], r["where"]): r["verdict"] for r in rows(path.parent / "claims.csv")
        }
        for line in path.read_text(encoding="utf-8").splitlines():
            cells = line.strip("| ").split(" | ")
            verdict = said_of.get((cells[0], cells[1])) if len(cells) in (5, 6) else None
            if verdict and not cells[4].startswith(verdict):
                yield path.parent.name, line, verdict


def counted(outputs: Path) -> Iterator[tuple[str, str]]:
    """(experiment, what) where the manifest does not count what the tables hold."""
    for path in sorted(outputs.glob("*/manifest.json")):
        record = read_manifest(path.parent) or {}
        scores, claims = (rows(path.parent / f"{name}.csv") for name in ("scorecard", "claims"))
        extensions = [r for r in claims if is_extension(r["where"])]
        for key, own in {"scorecard": scores, "claims": claims, "extensions": extensions}.items():
            counts = Counter({v: n for v, n in record.get(key, {}).items() if n})
            if counts != Counter(r["verdict"] for r in own):
                yield path.parent.name, f"{key}: {counts}"
