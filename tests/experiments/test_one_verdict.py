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
from runner.run.config.files import experiment_names
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
hsr_gradient | Proposition 1 | hsr.proposition1 | at fixed weights; to the letter
ws_bound | Theorem 7 | ws.theorem7 | along rays; to the letter
ws_bound | tighter than Chebyshev's | ws.theorem1 | a comparison of inequalities; the bound
ws_bound | tighter than Chebyshev's | ws.discussion.square | a comparison; a direction
ws_bound | tighter than Chebyshev's | ws.discussion.trace | a comparison; a direction
attention_hessian | lemma_G.2.3 | attention.g.2.part_1 | another part
attention_hessian | lemma_G.2.3 | attention.g.2.part_2 | another part
attention_hessian | lemma_G.2.3 | attention.g.2.part_4 | another part
attention_hessian | lemma_G.2.3 | attention.g.2.part_5 | another part
attention_hessian | lemma_G.2.3 | attention.g.2.part_6 | another part
attention_hessian | lemma_G.2.3 | attention.g.2.part_3 | the size of b; b from above alone
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


LYAPUNOV = {"metric": "lyapunov_1", "paper_mean": "-0.02", "depth": "8", "initial": "published"}
THEOREM_7 = "Theorem 7 without a condition on the weights"


@pytest.mark.parametrize(
    "experiment, table, verdict, row",
    [
        ("exp1_deep", "claims", "confirmed", {"name": "start of the U"}),
        ("exp1_resonance", "scorecard", "inconclusive", LYAPUNOV),
        ("exp5_attention", "claims", "refuted", {"name": "attention MSE at the end"}),
        ("scalar_spectrum", "claims", "confirmed", {"name": "phases"}),
        ("paper_audit", "claims", "refuted", {"name": "ws.theorem3"}),
        ("ws_bound", "claims", "confirmed", {"name": THEOREM_7}),
    ],
)
def test_a_second_verdict_is_noticed(tmp_path, experiment, table, verdict, row):
    assert with_verdict(tmp_path, experiment, table, verdict, **row).quarrels()
    # report.md of the audit has tables of its own
    listed = table == "claims" and experiment != "paper_audit"
    assert list(counted(tmp_path)) and bool(list(findings(tmp_path))) is listed


def test_findings_and_manifests_say_what_the_tables_say():
    assert not list(findings(PUBLISHED))
    assert not list(counted(PUBLISHED))


@pytest.mark.parametrize("table", ["claims", "scorecard"])
def test_what_has_no_power_says_how_many_seeds_would_decide_it(table):
    """Or "inf": none would; of a number it says why. What is missing would leave the reader to
    think that nobody looked."""
    for path in sorted(PUBLISHED.glob(f"*/{table}.csv")):
        for row in rows(path):
            if row["verdict"] == "inconclusive":
                needed = row["seeds_needed"]
                assert needed not in ("", "nan"), (path, row)
                assert needed != "inf" or row["undecidable"] or table == "claims", (path, row)


@pytest.mark.parametrize("name", experiment_names())
def test_the_table_of_experiments_is_made_from_the_reports(name):
    """Except its last column, the cost of what this checkout has measured."""
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    assert verdict_table.row(name).rpartition(" | ")[0] in text


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
    claims = rows(PUBLISHED / "paper_audit" / "claims.csv")
    claims = [row for row in claims if row["name"] != "dag.zeros.cells"]
    overview = (ROOT / "docs" / "errata.md").read_text()
    for key in keys():
        title = errata(key)["title"]
        found = Counter(row["verdict"] for row in claims if row["group"] == title)
        page = (ROOT / "docs" / "errata" / f"{key}.md").read_text()
        assert f"{sum(found.values())} clauses were checked: {found['confirmed']} hold" in page
        beginning = page.partition("\n## ")[0]
        told = Counter()
        for number, words in re.findall(r"(\d+) (with an? [a-z ]+)[,.]", beginning):
            told[words] = int(number)
        errors = found["refuted"] + found["minor error"]
        assert told["with a major error"] == found["refuted"], title
        assert told.total() == errors, title
        line = rf"\[{title}\][^|]*\| {found['confirmed'] + errors} \| {found['confirmed']} \|"
        assert re.search(line, overview), title
    readme = (ROOT / "experiments" / "paper_audit" / "README.md").read_text()
    assert f"check: {len(claims)} clauses" in readme


def test_the_errata_say_what_the_audit_says():
    audit_is_published()
    entries = json.loads((PUBLISHED / "paper_audit" / "errata.json").read_text())
    decided = {}  # place -> verdicts of its clauses
    for row in rows(PUBLISHED / "paper_audit" / "claims.csv"):
        decided.setdefault(row["where"].partition(", ")[2], set()).add(row["verdict"])
    words = {"major error": "refuted", "minor error": "minor error"}
    for entry in entries:
        if entry["verdict"] in words:
            for place in entry["also_affects"]:
                assert words[entry["verdict"]] in decided[place], entry["id"]
