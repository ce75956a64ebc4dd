"""The table `certificate` of a cell: what a report says of cells with, without and with a wrong
one; verification."""

import pandas as pd
import pytest

from runner.contract.records import certificate_row
from runner.curvature.verify import Certificate
from runner.report.certificates import certificate_lines
from runner.store.compare import compare

GOOD = Certificate(True, {"a": 2e-9, "b": 1e-8}, 1e-6, 1e-5)
BAD = Certificate(
    False, {"a": float("nan"), "b": 1.0}, 1e-6, 1e-5, ("products are wrong: first at node 'a'",)
)


def test_a_row_names_the_worst_node_and_the_reason():
    row = certificate_row("blocks", GOOD, checkpoint="final")
    assert row == {
        "checkpoint": "final", "what": "blocks", "ok": 1, "error": 1e-8, "where": "b",
        "tolerance": 1e-6, "difference_step": 1e-5, "status": "ok", "version": 3,
    }  # fmt: skip
    bad = certificate_row("blocks", BAD)
    assert (bad["ok"], bad["where"], bad["status"]) == (
        0,
        "a",
        "products are wrong: first at node 'a'",
    )


@pytest.mark.parametrize(
    "carried, found, never, expected",
    [
        ([True, True], [GOOD, GOOD], "", ["2 of 2 cells carry a certificate"]),
        (
            [True, False, False],
            [GOOD],
            "",
            ["1 of 3 cells carry", "2 of 3 cells carry no certificate: they are older"],
        ),
        ([False], [], "", ["1 of 1 cells carry no certificate"]),
        ([False], [], "it is an audit", ["No cell carries a certificate: it is an audit."]),
        (
            [True, True],
            [BAD, GOOD],
            "",
            ["NOT certified, seed=42 blocks: products are wrong", "1 of 2 agree"],
        ),
    ],
)
def test_what_a_report_says(carried, found, never, expected):
    lines = certificate_lines(
        carried, [certificate_row("blocks", c, seed=42) for c in found], never
    )
    assert len(lines) == len(expected)
    assert all(part in line for part, line in zip(expected, lines, strict=True))


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
    assert (
        found.identical
        and found.line() == "identical; the stored cell has no certificate, it was measured before"
    )
    assert not compare({**numbers, "certificate": table(GOOD)}, numbers, 0.0).agrees


def test_rounding_in_a_certificate_is_no_difference_and_its_verdict_is():
    other = Certificate(True, {"a": 4e-9, "b": 3e-8}, 1e-6, 1e-4)
    assert compare({"certificate": table(GOOD)}, {"certificate": table(other)}, 0.0).identical
    wrong = Certificate(False, {"b": 1e-8}, 1e-6, 1e-5, ("kink",))
    mended = compare({"certificate": table(wrong)}, {"certificate": table(GOOD)}, 0.0)
    assert (
        mended.identical
        and "the stored certificate disagreed, measured again it agrees" in mended.line()
    )
    assert not compare({"certificate": table(GOOD)}, {"certificate": table(wrong)}, 0.0).agrees
    still = Certificate(False, {"b": 3e-8}, 1e-6, 1e-4, ("kink",))
    assert compare({"certificate": table(wrong)}, {"certificate": table(still)}, 0.0).identical
    points = [{"points": pd.DataFrame({"error": [value]})} for value in (1.0, 2.0)]
    assert not compare(*points, 0.0).agrees
