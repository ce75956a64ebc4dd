"""Every confirmation can fail: judged in tables in which it would be false it is not confirmed."""

from dataclasses import replace

import pytest

from runner.contract import analyse
from runner.report.answers.judged import Judged
from runner.report.collect import collect
from runner.run.config.experiment import preview
from runner.run.config.files import experiment_names
from runner.run.config.jobs import build_job, protocol
from tests import PUBLISHED
from tests.experiments.verdicts import rows
from tests.slow import daily

NAMES = [name for name in experiment_names() if name != "paper_audit"]
"""Formulas have injected errors in place of tables (tests/mutations)."""
SLOW = ("hsr_regularization", "ws_bound", "attention_hessian", "scalar_spectrum", "hsr_gradient")
SLOW += ("exp1_resonance", "exp2_bottleneck", "exp3_gn_gap", "exp4_diamond", "exp6_resnet18")
KEPT = ("confirmed", "true by construction", "not run")
"""Verdicts of a statement that does not fail."""


def analysis_of(name, outputs):
    job = build_job([f"experiment={name}", f"outputs={outputs}"])
    return Judged(collect([job], protocol)).material.judged.analysis()


def confirmed(name):
    return {r["name"] for r in rows(PUBLISHED / name / "claims.csv") if r["verdict"] == "confirmed"}


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize("name", daily(NAMES, set(NAMES) - {*SLOW}))
def test_a_confirmed_statement_fails_in_its_alternative(name, tmp_path):
    analysis = analysis_of(name, tmp_path)
    for alternative in analysis.alternatives:
        changed = replace(analysis, tables=alternative.change(analysis.tables))
        verdicts = {claim.name: claim.verdict for claim in changed.claims()}
        kept = {s: verdicts[s] for s in alternative.statements if verdicts[s] in KEPT}
        assert not kept, alternative.text


@pytest.mark.parametrize("name", NAMES)
def test_each_confirmed_statement_has_one_alternative(name):
    alternatives = analyse(preview(name), {}).alternatives
    listed = [statement for a in alternatives for statement in a.statements]
    assert len(listed) == len(set(listed)) and confirmed(name) <= set(listed)
