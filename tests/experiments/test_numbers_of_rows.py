"""Printed numbers whose rows say how they are read: the value is that of the report."""

import pytest

from runner.report.answers.judged import Judged
from runner.report.answers.reference import numbers_of
from runner.report.collect import collect
from runner.run.config import build_job, protocol
from runner.stats.measured import values_of, with_table
from runner.stats.numbers import VALUE_COLUMNS
from runner.stats.scorecard import scorecard
from tests.slow import daily

NAMES = ("exp1_resonance", "exp1b_spectral_norm", "exp1_deep", "exp2_bottleneck")
NAMES += ("exp3_gn_gap", "exp3b_layernorm", "exp4_diamond", "exp5_attention")


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize("name", daily(NAMES, ["exp1b_spectral_norm", "exp5_attention"]))
def test_a_row_reads_the_value_of_the_report(name, tmp_path):
    job = build_job([f"experiment={name}", f"outputs={tmp_path}"])
    analysis = Judged(collect([job], protocol)).material(None).judged.analysis()
    numbers = with_table(numbers_of(name).read())
    rows = scorecard(values_of(numbers, analysis.judged(), analysis.functions), numbers)
    report = scorecard(analysis.measured(), numbers)
    keys = [column for column in report if column not in VALUE_COLUMNS]
    assert len(rows) == len(report) and list(rows["n"]) == list(report["n"]), keys
    assert list(rows["measured_mean"]) == pytest.approx(list(report["measured_mean"]), rel=1e-9)
