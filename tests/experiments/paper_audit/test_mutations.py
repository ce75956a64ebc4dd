"""Which errors can be injected at a node of a formula, and where."""

import ast

import pytest

from tests.mutations.formulas import changes, errors

CASES = """
a - b | sign | a + b
-f(x) | sign | f(x)
a + b | term | a
a + b | other term | b
a - b | other term | -b
a * b | lost factor | a
2 * b | lost factor | b
0 * b | lost factor |
a / b | inverse | a * b
3 * a | constant | 4 * a
a ** 2 | constant | a ** 3
a ** 2 | power | a
a @ b | double | 2 * (a @ b)
a @ b | half | a @ b / 2
x.sqrt() | root | x
abs(x) | root | x
m[i, j] | subscript | m[j, i]
m[i] | subscript | m[i - 1]
m[:, 0] | subscript |
i.a | index | j.a
t.w1 | index | t.w2
w1 | index | w2
i.V | index |
j.F(1) | index | j.F(2)
a.T | transpose | a
a * (b + c) | bracket | a * b + c
(a - b) @ c | bracket | a - b @ c
a * b + c | drawn in | a * (b + c)
a + b | repeated | a + a
a * a | repeated |
f(a, b) | arguments | f(b, a)
signed(i, j) | arguments |
x.sum(0) | reduction | x.mean(0)
max(a, b) | reduction | min(a, b)
a @ b | entrywise | a * b
a * b | plus | a + b
math.sqrt(a) | function | a
torch.exp(a) | function | torch.expm1(a)
a * b | squared | a * b * b
a * 2 | squared |
n - 1 | offset | n - 2
a < b | reversed | a > b
'a' + b | repeated |
"""


@pytest.mark.parametrize("case", CASES.strip().splitlines())
def test_changes(case):
    source, kind, expected = (part.strip() for part in case.split("|"))
    found = dict(changes(ast.parse(source, mode="eval").body)).get(kind)
    assert ("" if found is None else ast.unparse(ast.fix_missing_locations(found))) == expected


SOURCE = """
TABLE = {"a": lambda t: t.w1 + 1}

@cache
def f(a):
    return [a * k for k in range(3 + a)]
class C:
    x = property(lambda t: t.w1 * 2)
"""


def test_errors_are_injected_into_functions_and_tables_alone():
    """Neither ranges of loops nor definitions of a class are changed; a decorated function begins
    at its decorator."""
    found = errors(SOURCE)
    assert {(s.function, s.start) for s in found} == {("<lambda>", 2), ("f", 4)}
    assert {s.function for s in errors(SOURCE, ["f"])} == {"f"}
    assert not [s for s in found if "3 + a" in s.change]


def test_an_error_is_made_where_it_was_found():
    (sign,) = [s for s in errors(SOURCE, ["<lambda>"]) if s.kind == "sign"]
    assert sign.change == "t.w1 + 1 → t.w1 - 1"
    assert ast.unparse(sign.apply(SOURCE)) == ast.unparse(
        ast.parse(SOURCE.replace("t.w1 + 1", "t.w1 - 1"))
    )


def test_no_change_is_an_error_that_changes_nothing():
    assert not [s for s in errors("def f(a):\n    return g(a, a)\n") if s.kind == "arguments"]
