"""The verdicts of a folder of reports, by the row that reached them, and where two of them speak of
one print."""

import csv
import itertools
import math
from collections import Counter, defaultdict
from functools import cache

from experiments.paper_audit.papers import clauses, keys
from experiments.printed import said, statements
from runner.report.answers.reference import files
from runner.report.output.manifest import read_manifest
from runner.run.config.files import experiment_names
from runner.stats.numbers import BIBLIOGRAPHIC, VALUE_COLUMNS
from tests.experiments.paper_audit.places import covered

SAME = ("the same as a number", "the same in the audit")
"""How a file of texts says that a line speaks of what the line before it speaks of."""
ALIKE = {
    "holds": ("exact match", "reproduced", "confirmed", "holds"),
    "fails": ("not reproduced", "refuted", "wrong"),
    "minor error": ("minor error",),
    "open": ("inconclusive",),
    "constructed": ("true by construction",),
}
"""Words of scorecards, claims and the audit for one finding. Every other word (calibrated, not
comparable, not run, not checked) decides nothing, so that it contradicts nothing."""
FINDINGS = {word: name for name, words in ALIKE.items() for word in words}
NUMBERED = ("Theorem", "Proposition", "Corollary", "Lemma", "Remark", "Fact")
ROUGH = 0.1
"""A printed number of a larger relative rounding agrees with values of anything."""
PAPERS = {
    "attention": "attention",
    "scalar": "scalar",
    "ws": "ws_bound",
    "hsr": "hsr",
    "exp": "dag",
}
"""How names of experiments begin -> key of the audited paper that they are about."""


def contradict(verdicts):
    """Whether these cannot all be said of one print. What is so by construction may be said to
    hold."""
    found = {FINDINGS[word] for word in verdicts if word in FINDINGS}
    return len(found) > 1 and found != {"holds", "constructed"}


def rows(path):
    """The rows of a CSV file as texts."""
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def number(text):
    return float(text) if text.strip() else math.nan


def given(text):
    return text not in ("", "nan")


@cache
def groups():
    """Lines of the papers' texts, those that speak of one print together."""
    found = []
    for path in files("texts"):
        for line in said(path.parent.name):
            if line.statement not in SAME:
                found.append([])
            found[-1].append(line)
    return found


class Reports:
    """The reports below a folder."""

    def __init__(self, outputs):
        names = experiment_names()
        self.scores = {name: rows(outputs / name / "scorecard.csv") for name in names}
        self.claims = {}
        for name in names:
            table = rows(outputs / name / "claims.csv")
            self.claims[name] = {row["name"]: row for row in table}

    def of(self, s):
        """The verdicts of what a line points at; none where the experiment was not run. The numbers
        of a table are a print each."""
        if s.kind == "table":
            return []
        if s.kind != "number":
            row = self.claims.get(s.experiment, {}).get(s.row)
            return [row["verdict"]] if row else []
        found = [r for r in self.scores[s.experiment] if r["metric"] == s.row]
        # A print that was also run as described is counted apart there: another way, another
        # verdict.
        if len({r.get("way", "") for r in found}) > 1:
            found = [r for r in found if r.get("way") != "as described"]
        if s.value:
            found = [r for r in found if number(r["paper_mean"]) == float(s.value)]
        return [r["verdict"] for r in found]

    def quarrels(self):
        """Prints that two rows decide differently."""
        told = []
        for group in groups():
            verdicts = {f"{s.experiment} {s.row} {s.value}".strip(): self.of(s) for s in group}
            if contradict(itertools.chain.from_iterable(verdicts.values())):
                told.append(f"{group[0].place}: {verdicts}")
        return told + self.rows_twice()

    def rows_twice(self):
        """Numbers of one table, or statements in the same words, that two experiments decide
        differently."""
        found = defaultdict(dict)
        for experiment, scores in self.scores.items():
            for r in scores:
                value = r["paper_mean"] if given(r["paper_mean"]) else r["upper_bound"]
                keys = sorted(f"{k}={r[k]}" for k in keys_of(r) if given(r[k]))
                own = f"{experiment} {' '.join(keys)}"
                found[r["source"], value, *keys][own] = r["verdict"]
        for experiment, claims in self.claims.items():
            for r in claims.values():
                if r["extension"] != "True":
                    key = (paper_of(experiment), r["where"], r["statement"])
                    found[key][experiment] = r["verdict"]
        return [f"{key}: {by}" for key, by in found.items() if contradict(by.values())]

    def unlinked(self):
        """(experiment, statement, what) for pairs of rows that may speak of one print and stand in
        no common group."""
        linked = set()
        for group in groups():
            places = [(s.experiment, s.row) for s in group]
            linked |= set(itertools.permutations(places, 2))
        found = set()
        for experiment in self.claims:
            for name, s in printed(experiment).items():
                here = (experiment, name)
                pairs = {(here, (experiment, m)) for m in self.metrics_at(experiment, s)}
                clauses_at = audited_at(paper_of(experiment), s)
                audit = {(here, ("paper_audit", clause)) for clause in clauses_at}
                if not audit & linked:  # one clause that is linked speaks for all of the place
                    pairs |= audit
                found |= {(experiment, name, row) for _, (_, row) in pairs - linked}
        return found

    def metrics_at(self, experiment, s):
        """Metrics of the experiment's scorecard with a printed value that is the statement's number
        or limit; a limit that we chose is printed nowhere."""
        values = [(s.number, s.rounding)] if not math.isnan(s.number) else []
        limits = () if s.chosen else (s.low, s.high)
        values += [(v, 0.0) for v in limits if math.isfinite(v) and v not in (0, 1)]
        found = set()
        for value, half in values:
            if half <= ROUGH * abs(value):
                near = half * 1.0001 + 1e-12 * abs(value)
                for r in self.scores[experiment]:
                    if abs(number(r["paper_mean"]) - value) <= near:
                        found.add(r["metric"])
        return found


def audited_at(paper, s):
    """Clauses of the audit about a numbered place of the statement."""
    if paper not in keys():
        return []
    places = {p for p in covered(s.place) if p[0] in NUMBERED}
    return [clause.id for clause in clauses(paper) if places & {*covered(clause.place)}]


def keys_of(row):
    """The columns of a scorecard that tell its values apart."""
    columns = list(row)
    return set(columns[: columns.index("paper_mean")]) - set(VALUE_COLUMNS) - set(BIBLIOGRAPHIC)


def paper_of(experiment):
    """Key of the audited paper that an experiment is about."""
    return next((key for start, key in PAPERS.items() if experiment.startswith(start)), experiment)


def printed(experiment):
    """The statements of a paper that an experiment decides; no extension."""
    try:
        found = statements(experiment)
    except ValueError:
        return {}
    return {name: s for name, s in found.items() if not s.extension}


def findings(outputs):
    """(experiment, line, what is wrong) where report.md lists a statement under another verdict
    than claims.csv; the sixth column, if any, is the replication."""
    for path in sorted(outputs.glob("*/report.md")):
        told = {}
        for row in rows(path.parent / "claims.csv"):
            told[row["statement"], row["where"]] = row["verdict"]
        for line in path.read_text(encoding="utf-8").splitlines():
            cells = line.strip("| ").split(" | ")
            verdict = told.get((cells[0], cells[1])) if len(cells) in (5, 6) else None
            if verdict and not cells[4].startswith(verdict):
                yield path.parent.name, line, verdict


def counted(outputs):
    """(experiment, what) where the manifest does not count what the tables hold."""
    for path in sorted(outputs.glob("*/manifest.json")):
        record = read_manifest(path.parent) or {}
        scores, claims = (rows(path.parent / f"{name}.csv") for name in ("scorecard", "claims"))
        extensions = [r for r in claims if r["extension"] == "True"]
        for key, own in {"scorecard": scores, "claims": claims, "extensions": extensions}.items():
            counts = {v: n for v, n in record.get(key, {}).items() if n}
            if counts != Counter(r["verdict"] for r in own):
                yield path.parent.name, f"{key}: {counts}"
