"""Files of statements: what is read, and one line for what cannot be meant."""

import math
import re

import pytest

from experiments.printed import statement_rows
from runner.contract import Statement
from runner.stats.rows import FIELDS, RowError, read_statements
from tests import ROOT
from tests.errors import refusal

HEADER = "name,text,place,low,high,number,std,n,strict,reason,where,variant\n"


def test_statements_are_read_from_a_file(tmp_path):
    path = tmp_path / "statements.csv"
    path.write_text(
        HEADER
        + "a,\"R² > 0.91, always\",Fig. 3,0.91,,,,,yes,,depth == 8 and arch in ('x'),\n"
        + "b,about 5,Sec. 5,,,5.0,,5,,read so,,QR\nb,,,,,,,,,,v == w,Eq. 8\n"
    )
    a, b = read_statements(path).values()
    assert a.threshold == "> 0.91" and a.strict and a.place == "Fig. 3"
    assert (b.threshold, b.n, b.reason, b.variant) == ("5 ± 0.05", 5, "read so", "QR")
    (other,) = b.readings
    assert (other.variant, other.where, other.number, other.text) == ("Eq. 8", "v == w", 5, b.text)
    assert math.isnan(a.number) and a.readings == ()


@pytest.mark.parametrize(
    "text, words",
    [
        (HEADER + "a,x,y,1,,2,,,,,,\n", "limits or a number, found both"),
        (HEADER + "a,x,y,one,,,,,,,,\n", "row 2, low: expected a number, found 'one'"),
        (HEADER + "a,x,y,,,,,,maybe,,,\n", "row 2, strict: expected one of yes"),
        (HEADER + "a,x,y,,,,,,,,,\n" * 2, "row 3, variant: expected a name"),
        (HEADER + "a,,y,,,,,,,,,\n", "row 2, text: expected a text"),
        (HEADER + "a,x,y,1\n", "row 2: expected"),
        (HEADER + "a,x,y,,,,,,,,depth ==,\n", "row 2, where: expected comparisons"),
        (HEADER + "a,x,y,,,,,,,,a > 1 or b > 1,\n", "row 2, where: expected a comparison"),
        (HEADER + "a,x,y,,,,,,,,depth > 2 * half,\n", "expected a column or a value"),
        (HEADER + "a,x,y,,,,,,,,f(depth) > 2,\n", "expected a column or a value"),
        ("name,text,parts\na,x,{depth\n", "row 2, parts: expected a template"),
        ("name,text,scales\na,b,\n", "did you mean scale"),
    ],
)
def test_rows_that_cannot_be_meant_are_refused(tmp_path, text, words):
    path = tmp_path / "statements.csv"
    path.write_text(text)
    with refusal(words, RowError):
        read_statements(path)
    with refusal("cannot be read", RowError):
        read_statements(tmp_path / "absent.csv")


def test_every_column_is_explained_with_an_example():
    page = (ROOT / "docs" / "statements.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = {name for cell in cells for name in re.findall("`([a-z_]+)`", cell)}
    assert listed >= set(FIELDS)


def test_all_rows_of_the_papers_can_be_read():
    rows = statement_rows()
    assert len(rows) > 250 and all(isinstance(row, Statement) for row in rows.values())
