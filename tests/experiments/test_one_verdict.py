"""One number, and one statement, has one verdict wherever it appears: over the committed
reports."""

import csv
import json
import re
import shutil
from collections import Counter

import pytest

from docs import verdict_table
from experiments.paper_audit.papers import errata, keys
from experiments.paper_audit.settings import PaperAudit
from runner.run.config import experiment_names
from tests import PUBLISHED, ROOT
from tests.experiments.verdicts import Reports, counted, findings, rows

APART = """
exp1_resonance | decay after training | dag.remark38 | a decay measured; the display of a mean
exp1_resonance | cancellation | dag.remark38 | the explanation, measured; the display of a mean
exp1_resonance | decay after training | dag.remark38.variance | a decay; a word
exp1_resonance | cancellation | dag.remark38.variance | an explanation; a word
exp2_bottleneck | rank bound, mean | dag.prop31 | the mean over a batch; one example
exp2_bottleneck | rank bound, mean | dag.prop31.text | the mean over a batch; one example
exp3_stochastic | discrepancy at init | abs_rel_discrepancy_percent | the largest; one activation
exp3_stochastic | discrepancy at the end | abs_rel_discrepancy_percent | the largest; one activation
exp6_resnet18 | gap of the SiLU ResNet at init | C | a gap; a coupling
hsr_gradient | Proposition 1 | hsr.proposition1 | at fixed weights; to the letter
scalar_spectrum | normalising_sharpens | outliers | a factor; a count
ws_bound | Theorem 7 | ws.theorem7 | along rays; to the letter
ws_bound | tighter than Chebyshev's | ws.theorem1 | a comparison of inequalities; the bound
ws_bound | tighter than Chebyshev's | ws.discussion.square | a comparison; a direction
ws_bound | tighter than Chebyshev's | ws.discussion.trace | a comparison; a direction
attention_newton | time of an iteration | attention.theorem_j.1.loss | another clause
attention_newton | time of an iteration | attention.theorem_j.1.convexity | another clause
attention_newton | time of an iteration | attention.theorem_j.1.convergence | another clause
attention_newton | time of an iteration | attention.theorem_j.1.recovery | another clause
"""
"""Experiment, statement, row, and why the two do not speak of one print, although place or number
are the same."""


def test_no_print_has_two_verdicts():
    assert not Reports(PUBLISHED).quarrels()


def test_what_may_be_one_print_is_linked_or_told_apart():
    told = {tuple(line.split(" | ")[:3]) for line in APART.strip().splitlines()}
    assert set(Reports(PUBLISHED).unlinked()) == told  # no reason is left without its pair


def with_verdict(outputs, experiment, table, verdict, **row):
    """A copy of the reports with another verdict in the row of a table that has these values."""
    for name in ("claims.csv", "scorecard.csv", "report.md", "manifest.json"):
        for path in PUBLISHED.glob(f"*/{name}"):
            target = outputs / path.relative_to(PUBLISHED)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    path = outputs / experiment / f"{table}.csv"
    found = rows(path)
    (changed,) = [r for r in found if row.items() <= r.items()]
    changed["verdict"] = verdict
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(found[0]))
        writer.writeheader()
        writer.writerows(found)
    return Reports(outputs)


@pytest.mark.parametrize(
    "experiment, table, verdict, row",
    [
        ("exp1_deep", "claims", "confirmed", {"name": "start of the U"}),
        (
            "exp1_resonance",
            "scorecard",
            "inconclusive",
            {"metric": "lyapunov_1", "paper_mean": "-0.02", "depth": "8"},
        ),
        ("exp5_attention", "claims", "refuted", {"name": "attention MSE at the end"}),
        ("scalar_spectrum", "claims", "confirmed", {"name": "phases"}),
        ("paper_audit", "claims", "refuted", {"name": "ws.theorem3"}),
        (
            "ws_bound",
            "claims",
            "confirmed",
            {"name": "Theorem 7 without a condition on the weights"},
        ),
    ],
)
def test_a_second_verdict_is_noticed(tmp_path, experiment, table, verdict, row):
    assert with_verdict(tmp_path, experiment, table, verdict, **row).quarrels()
    listed = (
        table == "claims" and experiment != "paper_audit"
    )  # whose report.md has tables of its own
    assert list(counted(tmp_path)) and bool(list(findings(tmp_path))) is listed


def test_findings_and_manifests_say_what_the_tables_say():
    assert not list(findings(PUBLISHED))
    assert not list(counted(PUBLISHED))


def test_what_has_no_power_says_how_many_seeds_would_decide_it():
    """Or "inf": none would. What is missing would leave the reader to think that nobody looked."""
    bare = [
        (path.parent.name, row["name"] if "name" in row else row["metric"])
        for table, verdict in (("claims", "inconclusive"), ("scorecard", "inconclusive"))
        for path in sorted(PUBLISHED.glob(f"*/{table}.csv"))
        for row in rows(path)
        if row["verdict"] == verdict and row["seeds_needed"] in ("", "nan")
    ]
    assert not bare


def test_a_number_that_no_seeds_decide_says_why():
    bare = [
        (path.parent.name, row["metric"])
        for path in sorted(PUBLISHED.glob("*/scorecard.csv"))
        for row in rows(path)
        if row["verdict"] == "inconclusive" and row["seeds_needed"] == "inf"
        if not row["undecidable"]
    ]
    assert not bare


def test_the_table_of_experiments_is_made_from_the_reports():
    """But for its last column, the cost of what this checkout has measured."""
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    assert not [
        name
        for name in experiment_names()
        if verdict_table.row(name).rpartition(" | ")[0] not in text
    ]


def audit_is_published():
    """Skips where the published report is of another version of the audit than the pages in
    docs/."""
    published = json.loads((PUBLISHED / "paper_audit" / "manifest.json").read_text())["version"]
    if published != PaperAudit.version:
        current = PaperAudit.version
        pytest.skip(f"the published audit is of version {published}, the code of version {current}")


def test_counts_of_the_audit_agree():
    """Rows of claims.csv by verdict, the sentences of the errata pages, the table above them, the
    audit's README."""
    audit_is_published()
    claims = [
        row
        for row in rows(PUBLISHED / "paper_audit" / "claims.csv")
        if row["name"] != "dag.zeros.cells"
    ]
    overview = (ROOT / "docs" / "errata.md").read_text()
    for key in keys():
        title = errata(key)["title"]
        found = Counter(row["verdict"] for row in claims if row["group"] == title)
        page = (ROOT / "docs" / "errata" / f"{key}.md").read_text()
        assert f"{sum(found.values())} clauses were checked: {found['confirmed']} hold" in page
        told = {
            words: int(n)
            for n, words in re.findall(
                r"(\d+) (with an? [a-z ]+)[,.]", page.partition("Root causes")[0]
            )
        }
        assert told.get("with a major error", 0) == found["refuted"], title
        assert sum(told.values()) == found["refuted"] + found["minor error"], title
        counted = found["confirmed"] + found["refuted"] + found["minor error"]
        assert re.search(rf"\[{title}\][^|]*\| {counted} \| {found['confirmed']} \|", overview), (
            title
        )
    readme = (ROOT / "experiments" / "paper_audit" / "README.md").read_text()
    assert f"check: {len(claims)} clauses" in readme


def test_the_errata_say_what_the_audit_says():
    audit_is_published()
    entries = json.loads((PUBLISHED / "paper_audit" / "errata.json").read_text())
    decided = {}  # place -> verdicts of its clauses
    for row in rows(PUBLISHED / "paper_audit" / "claims.csv"):
        decided.setdefault(row["where"].partition(", ")[2], set()).add(row["verdict"])
    words = {"major error": "refuted", "minor error": "minor error"}
    for entry in [e for e in entries if e["verdict"] in words]:
        assert all(words[entry["verdict"]] in decided[place] for place in entry["also_affects"]), (
            entry["id"]
        )
