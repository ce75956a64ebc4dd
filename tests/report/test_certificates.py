"""The table `certificate` of a cell: what a report says of cells with, without and with a wrong
one; verification."""

import pandas as pd
import pytest

from runner.contract.records import certificate_row
from runner.curvature.uses.certificate import Certificate
from runner.report.answers.certificates import certificate_lines
from runner.store.compare import compare

GOOD = Certificate(True, {"a": 2e-9, "b": 1e-8}, 1e-6, 1e-5)
BAD = Certificate(
    False, {"a": float("nan"), "b": 1.0}, 1e-6, 1e-5, ("products are wrong: first at node 'a'",)
)

OPEN = Certificate(
    False,
    {"a": 1e-8, "b": 0.1},
    1e-6,
    1e-5,
    ("nothing can be told of node 'b'",),
    kinks=(2,),
    inconclusive=("b",),
)


def test_a_row_names_the_worst_node_and_the_reason():
    row = certificate_row("blocks", GOOD, checkpoint="final")
    values = dict(checkpoint="final", what="blocks", ok=1, error=1e-8, where="b", status="ok")
    assert row == values | {"tolerance": 1e-6, "difference_step": 1e-5, "version": 3}
    bad = certificate_row("blocks", BAD)
    assert (bad["ok"], bad["where"]) == (0, "a")
    assert bad["status"] == "products are wrong: first at node 'a'"
    assert certificate_row("blocks", OPEN)["ok"] is None


@pytest.mark.parametrize(
    "found, never, expected",
    [
        ([GOOD, GOOD], "", "2 of 2 cells carry a certificate"),
        (
            [GOOD, None, None],
            "",
            "1 of 3 cells carry;2 of 3 cells carry no certificate: they are old",
        ),
        ([None], "", ""),
        ([None], "it is an audit", "No cell carries a certificate: it is an audit."),
        ([BAD, GOOD], "", "NOT certified, seed=42 blocks: products are wrong;1 of 2 agree"),
        ([OPEN, GOOD], "", "1 of 2 agree, largest relative error 1.0e-08;1 of 2 certificates are"),
    ],
)
def test_what_a_report_says(found, never, expected):
    rows = [certificate_row("blocks", made, seed=42) for made in found if made]
    lines = certificate_lines([made is not None for made in found], rows, never)
    wanted = expected.split(";") if expected else []
    assert all(part in line for part, line in zip(wanted, lines, strict=True))


def test_a_wrong_certificate_of_the_first_version_of_the_check_is_said_to_be_one():
    row = certificate_row("blocks", BAD)
    assert len(certificate_lines([True], [row])) == 2
    for first in ({**row, "version": float("nan")}, {**row, "version": None}):
        lines = certificate_lines([True], [first])
        assert len(lines) == 3 and "neither support nor contradict the numbers" in lines[1]


def table(certificate):
    return pd.DataFrame([certificate_row("blocks", certificate)])


def test_a_cell_from_before_certificates_agrees_and_says_so():
    numbers = {"points": pd.DataFrame({"x": [1.0]})}
    found = compare(numbers, {**numbers, "certificate": table(GOOD)}, 0.0)
    assert found.identical
    assert found.line() == "identical; the stored cell has no certificate, it was measured before"
    assert not compare({**numbers, "certificate": table(GOOD)}, numbers, 0.0).agrees


def test_rounding_in_a_certificate_is_no_difference_and_its_verdict_is():
    def compared(*both):
        return compare(*({"certificate": table(one)} for one in both), 0.0)

    other = Certificate(True, {"a": 4e-9, "b": 3e-8}, 1e-6, 1e-4)
    assert compared(GOOD, other).identical
    wrong = Certificate(False, {"b": 1e-8}, 1e-6, 1e-5, ("kink",))
    mended = compared(wrong, GOOD)
    assert mended.identical
    assert "the stored certificate disagreed, measured again it agrees" in mended.line()
    assert not compared(GOOD, wrong).agrees
    assert compared(wrong, Certificate(False, {"b": 3e-8}, 1e-6, 1e-4, ("kink",))).identical
    unclear = compared(GOOD, OPEN)
    assert unclear.identical
    assert "1 of 1 rows of the certificate are inconclusive now" in unclear.line()
    assert compared(OPEN, GOOD).identical
    points = [{"points": pd.DataFrame({"error": [value]})} for value in (1.0, 2.0)]
    assert not compare(*points, 0.0).agrees
