"""Injected errors: which kinds change what, which are caught, and the samples that were run once."""

from __future__ import annotations

import ast
import itertools

import pytest
import torch

from experiments.paper_audit.papers import ROOM
from experiments.paper_audit.sharpness import bounds, held_out, slips, trials
from experiments.paper_audit.sharpness.mutation import KINDS, mutations
from experiments.paper_audit.sharpness.targets import TARGETS

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("key", TARGETS)
def test_injected_errors_are_caught(key: str) -> None:
    """A small sample of the audit's own table of sharpness; what is proved to be no error is not counted."""
    found = list(itertools.islice(trials.trials(key, 3), 3))
    missed = [(t.place.partition(":")[0], t.change) for t in found if not t.caught_by and not t.same]
    assert len(found) == 3 and not missed, missed
    assert not [t for t in found if t.same and t.caught_by], "a change proved to be none is caught"


@pytest.mark.parametrize(
    ("source", "kind", "expected"),
    [
        ("a * (b + c)", "bracket", "a * b + c"),
        ("(a - b) @ c", "bracket", "a - b @ c"),
        ("a * b + c", "drawn in", "a * (b + c)"),
        ("a @ b", "half", "a @ b / 2"),
        ("a + b", "repeated", "a + a"),
        ("a * a", "repeated", ""),
        ("f(a, b)", "arguments", "f(b, a)"),
        ("f(a, a)", "arguments", ""),
        ("x.sum(0)", "reduction", "x.mean(0)"),
        ("max(a, b)", "reduction", "min(a, b)"),
        ("a @ b", "entrywise", "a * b"),
        ("a * b", "plus", "a + b"),
        ("math.sqrt(a)", "function", "a"),
        ("torch.exp(a)", "function", "torch.expm1(a)"),
        ("a * b", "squared", "a * b * b"),
        ("a * 2", "squared", ""),
        ("n - 1", "offset", "n - 2"),
        ("a < b", "reversed", "a > b"),
        ("'a' + b", "repeated", ""),
    ],
)
def test_kinds_of_slips(source: str, kind: str, expected: str) -> None:
    found = slips.change(ast.parse(source, mode="eval").body, kind)
    assert ("" if found is None else ast.unparse(ast.fix_missing_locations(found))) == expected


def test_the_sample_of_slips_stands_as_it_was_run() -> None:
    """Kinds apart from the others, at least 200 errors, at least 95 % of them caught, each miss with its reason."""
    rows = slips.first_run()
    errors = [row for row in rows if not row["same"]]
    assert len(errors) == slips.COUNT * len(TARGETS) and not set(slips.KINDS) & {*held_out.KINDS, *KINDS}
    assert sum(bool(row["caught"]) for row in errors) >= 0.95 * len(errors)
    assert all(bool(row["why_not"]) != row["caught"] for row in errors)
    assert not [row for row in rows if row["same"] and row["caught"]]
    caught = sum(bool(row["caught"]) for row in errors)
    page = (ROOM / "README.md").read_text(encoding="utf-8")
    assert f"{caught} of {len(errors)} caught" in page
    assert f"had {sum(bool(row['caught']) for row in held_out.first_run())} caught" in page


@pytest.mark.parametrize(
    ("source", "kind", "expected"),
    [
        ("a + b", "other term", "b"),
        ("a - b", "other term", "-b"),
        ("a * b", "lost factor", "a"),
        ("2 * b", "lost factor", ""),
        ("a @ b", "order", "b @ a"),
        ("a @ a", "order", ""),
        ("a / b", "inverse", "a * b"),
        ("3 * a", "constant", "4 * a"),
        ("a ** 2", "constant", "a ** 3"),
        ("0 * a", "constant", ""),
        ("a @ b", "double", "2 * (a @ b)"),
        ("x.sqrt()", "root", "x"),
        ("abs(x)", "root", "x"),
        ("m[i, j]", "subscript", "m[j, i]"),
        ("m[i]", "subscript", "m[i - 1]"),
        ("m[:, 0]", "subscript", ""),
        ("'a' + b", "other term", ""),
    ],
)
def test_held_out_kinds_of_error(source: str, kind: str, expected: str) -> None:
    found = held_out.change(ast.parse(source, mode="eval").body, kind)
    assert ("" if found is None else ast.unparse(ast.fix_missing_locations(found))) == expected


def test_the_held_out_sample_is_the_one_that_was_fixed() -> None:
    """The first run stands as it was measured, on other kinds and of at least 200 errors; functions that are decorated
    are found where the compiler says that they begin."""
    rows = held_out.first_run()
    assert len(rows) == 225 and not set(held_out.KINDS) & set(KINDS)
    assert {str(row["kind"]) for row in rows} == set(held_out.KINDS)
    assert all(bool(row["why_not"]) != row["caught"] for row in rows)
    (one,) = [m for m in mutations("@cache\ndef f(a):\n    return a * a\n", kinds=["lost factor"])]
    assert one.start == 1


def test_mutations_change_the_value() -> None:
    source = "def f(i, j):\n    return 2 * i.a - j.b ** 2 @ outer(i.a, j.b)\n"
    found = {m.kind for m in mutations(source)}
    assert {"sign", "term", "factor", "power", "index"} <= found
    space: dict = {}
    exec(
        compile(mutations("def g():\n    return 3 + 4\n")[0].apply("def g():\n    return 3 + 4\n"), "x", "exec"), space
    )
    assert space["g"]() == -1


@pytest.mark.parametrize("error", bounds.WRONG, ids=lambda e: f"{e.clause}: {e.wrong}")
def test_wrong_constants_of_bounds_are_noticed(error: bounds.Wrong) -> None:
    assert bounds.noticed(error)
