"""One suite for every audited paper: agreement of every clause, completeness of what is said,
coverage, pages."""

import functools
import json
import re
from dataclasses import replace

import pytest

from experiments.paper_audit import (
    checks,
    effects,
    published as cells,
    three_layer,
    three_layer_search,
)
from experiments.paper_audit.attention import terms
from experiments.paper_audit.dag import zeros
from experiments.paper_audit.effects import EXAMPLES
from experiments.paper_audit.entries import entries
from experiments.paper_audit.hsr import gradients
from experiments.paper_audit.measure import audit, check
from experiments.paper_audit.papers import CLASSES, Clause, clauses, errata, keys, verdict
from experiments.paper_audit.report import claims, judged
from experiments.paper_audit.ws_bound import squares
from runner import results
from tests import PUBLISHED, ROOT
from tests.experiments.paper_audit.places import inventory, missing
from tests.slow import daily

DOCS = ROOT / "docs" / "errata"
BY_ID = {clause.id: clause for key in keys() for clause in clauses(key)}
PREFIX = {"ws_bound": "ws"}
TEXTS = ("id", "place", "kind", "number", "printed", "corrected", "consequence", "view")
FURTHER = {"elsewhere", "experiments", "example", "reply", "family", "outside"}
"""Keys of an erratum: those of each, those of some."""


def once(function):
    """`function` of an instance, evaluated once for the same tensors."""
    known = {}

    def call(instance, *rest):
        of = (instance.theta, instance.x, instance.q, *rest)
        key = (*map(id, of), instance.name)
        if key not in known:
            # kept with their objects, so that no other gets their id
            known[key] = (of, function(instance, *rest))
        return known[key][1]

    return call


@pytest.fixture(autouse=True, scope="module")
def _evaluated_once():
    """The searches of several inequalities share their starts, and a network its samples and
    derivatives. Searches take a third of the audit's steps, and lemmas of the attention paper three
    tuples of indices: they find here what a change breaks, there what a paper got wrong."""
    with pytest.MonkeyPatch.context() as patch:
        attack, starts = checks.attack, three_layer_search._ladder
        ladder = functools.cache(lambda name: tuple(starts(name)))

        def short(f, start, steps=80, *rest):
            return attack(f, start, steps // 3, *rest)

        patch.setattr(checks, "attack", short)
        patch.setattr(terms, "TUPLES_PER_SIZE", 3)
        patch.setattr(effects, "PUBLISHED_SEEDS", effects.PUBLISHED_SEEDS[:1])
        patch.setattr(squares, "grams", once(squares.grams))
        patch.setattr(gradients, "gradient_of", once(gradients.gradient_of))
        patch.setattr(three_layer_search, "_ladder", ladder)
        for of, names in (
            (three_layer.Instance, ("samples", "hessian")),
            (three_layer.Sample, ("p", "s1", "s2")),
        ):
            for name in names:
                kept = functools.cached_property(getattr(of, name).fget)
                kept.__set_name__(of, name)
                patch.setattr(of, name, kept)
        yield


@functools.cache
def outcome(name):
    return BY_ID[name].check()


def first_error(key):
    """The first clause of a paper that is wrong."""
    return next(clause.id for clause in clauses(key) if clause.root)


DAILY = {*list(BY_ID)[::3], *map(first_error, keys())}
"""A third of the clauses is checked every day, with the first error of each paper."""


@pytest.mark.parametrize(
    "name",
    daily(BY_ID, DAILY),
)
def test_agreement_follows_from_the_numbers(name, published):
    clause, found = BY_ID[name], outcome(name)
    assert found.agreement == clause.expected, (
        f"printed off by {found.printed:.3g}, corrected {found.corrected}"
    )
    assert found.instances >= 1
    if clause.expected != "holds":
        assert clause.root and found.witness, "what is off has a root cause and an instance"
        assert found.printed > 10 * found.tolerance, "far from rounding"
    if clause.expected == "holds after correction":
        assert found.corrected is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, clause in BY_ID.items() if clause.without])
def test_the_check_fails_without_its_hypothesis(name):
    for what, without in BY_ID[name].without.items():
        assert without().agreement != "holds", f"the check passes without its hypothesis: {what}"


@pytest.mark.parametrize("key", keys())
def test_what_is_said_is_complete(key):
    prefix = PREFIX.get(key, key) + "."
    ids = [clause.id for clause in clauses(key)]
    assert len(set(ids)) == len(ids) and all(name.startswith(prefix) for name in ids)
    assert all(clause.place and clause.statement for clause in clauses(key))
    texts = errata(key)
    roots = [erratum["id"] for erratum in texts["erratum"]]
    assert len(set(roots)) == len(roots)
    assert set(roots) == {clause.root for clause in clauses(key)} - {""}
    for erratum in texts["erratum"]:
        assert all(erratum[text] for text in TEXTS) and erratum["kind"] in CLASSES
        assert set(erratum) - FURTHER == set(TEXTS), erratum["id"]
        changes = "experiments" in erratum
        assert erratum["kind"] != "A" or changes, f"{erratum['id']}: what it changes there"
        assert ("reply" in erratum) == (erratum["kind"] in "AB"), f"{erratum['id']}: why it stands"
        assert ("family" in erratum) == (erratum["kind"] in "ABC"), f"{erratum['id']}: its scope"
    labels = [(erratum["kind"], erratum["number"]) for erratum in texts["erratum"]]
    assert len(set(labels)) == len(labels)
    assert all(entry["place"] and entry["reason"] for entry in texts["unchecked"])


@pytest.mark.parametrize("key", keys())
def test_every_numbered_statement_has_a_row_or_a_reason(key):
    assert len(inventory(key)) > 60
    assert missing(key) == []


def test_scan_and_notation_are_never_counted_as_wrong():
    for clause in BY_ID.values():
        if clause.kind in ("C", "D", "E"):
            assert check_verdict(clause) != "major error"


@pytest.mark.parametrize(
    "stored", [pytest.param(False, id="produced", marks=pytest.mark.slow), True]
)
def test_confirmed_is_decided_by_the_numbers_shown(stored, published):
    """A confirmed clause shows a statistic within its threshold, a refuted one a statistic beyond
    it; a line that is blank is not confirmed."""
    if stored:
        table = results.load("paper_audit")["formulas"]
        columns = ("class", "uncounted", "correction", "criterion", "history")
        texts = table.fillna(dict.fromkeys(columns, ""))
        rows = [judged(row) for row in texts.to_dict("records")]
    else:
        both = [(key, clause) for key in keys() for clause in clauses(key)]
        rows = [check(evaluated(clause)) | {"source": key} for key, clause in both]
    made = {claim.name: claim for claim in claims(rows)}
    assert len(made) == len(BY_ID)
    for name, claim in made.items():
        limit = float(claim.threshold.removeprefix("error <= "))
        if claim.verdict == "confirmed":
            assert claim.statistic <= limit, name
        elif claim.verdict in ("minor error", "refuted"):
            assert claim.statistic > limit, name
    assert made["attention.c.14.part_2"].verdict == "not comparable"
    assert "rho^7" in made["dag.remark27.number"].detail
    assert made["dag.remark52"].detail.endswith("chosen when the values had been seen")


def evaluated(clause):
    """The clause with the outcome that the tests above have already computed."""
    return replace(clause, check=functools.partial(outcome, clause.id), without={})


def check_verdict(clause):
    return verdict(clause.expected, clause.kind, clause.uncounted)


def committed():
    return json.loads((PUBLISHED / "paper_audit" / "errata.json").read_text(encoding="utf-8"))


def test_cells_beside_the_protocol_enter_no_erratum():
    """Rounding, orders of other seeds and further seeds are measured in the same store; the paper
    has none of them."""
    keys, published = {"activation": "silu"}, {"training": {"order": "published"}}
    own = {"seed": 42, "params": keys, "settings": published}
    assert cells._in_protocol(own, keys)
    for other in (
        {"settings": {"training": {"perturbation": 1e-7}}},
        {"settings": {"training": {"order_seed": 43}}},
        {"seed": 100},
        {"params": {"activation": "gelu"}},
    ):
        assert not cells._in_protocol(own | other, keys)


def _words(text):
    return re.sub(r"[-−+]?\d+(\.\d+)?(e[-+]?\d+)?", "#", text)


WRITTEN = (
    *("id", "label", "class", "printed", "corrected", "elsewhere", "consequence"),
    *("authors_view", "reply", "outside"),
)


@pytest.mark.parametrize("key", keys())
def test_committed_errata_are_those_of_the_code(key, published):
    """Texts, classes and places to the letter; worked checks, where the first clause of an erratum
    is one of those checked every day, to their digits."""
    written = [entry for entry in committed() if entry["paper"] == key]
    first = {clause.root: clause for clause in reversed(clauses(key)) if clause.root}
    quick = [clause for clause in first.values() if clause.id in DAILY]
    assert quick
    rows = []
    for clause in clauses(key):
        rows.append(check(evaluated(clause)) if clause in quick else _blank(clause))
    fresh = entries(key, rows)
    assert [e["place"] for e in fresh] == [e["place"] for e in written]
    page = (DOCS / f"{key}.md").read_text(encoding="utf-8")
    checked = {clause.root for clause in quick}
    for new, old in zip(fresh, written, strict=True):
        name = new["id"]
        for text in (*WRITTEN, "also_affects"):
            assert new[text] == old[text], f"{name}: run make errata"
        assert _words(new["experiments"]) == _words(old["experiments"]), f"{name}: run make errata"
        assert not re.search(r"\bnan\b", old["experiments"]), f"{name}: a number that is not stored"
        shown = new["printed"] in page or new["printed"].replace("|", "\\|") in page
        assert new["class"] == "E" or shown
        for mine, theirs in zip(new["worked_checks"], old["worked_checks"], strict=False):
            if mine["instance"] and name in checked:
                assert [*map(_words, mine.values())] == [*map(_words, theirs.values())]


def _blank(clause):
    row = dict.fromkeys(("instance", "printed", "corrected", "reference"), "")
    return row | {"root": clause.root, "place": clause.place, "verdict": check_verdict(clause)}


def unfolded(text):
    """What a reader sees before unfolding anything; folds may hold folds."""
    depth, kept = 0, []
    for part in re.split(r"(</?details>)", text):
        depth += {"<details>": 1, "</details>": -1}.get(part, 0)
        kept += [part] if depth == 0 and part != "</details>" else []
    return "".join(kept)


def test_pages_are_short():
    """Outside what is folded stand class A and the table of class B."""
    for key in keys():
        text = (DOCS / f"{key}.md").read_text(encoding="utf-8")
        open_text = unfolded(text)
        words = [word for word in open_text.split() if re.search(r"\w", word)]
        assert len(words) <= 1500, key
        assert not re.search(r"\b(printed|corrected|reference) nan\b", text), key
        assert text.index("What survives") < text.index("\n## "), "a page begins with what survives"


def test_command_prints_the_check_and_what_is_said_of_the_error(capsys):
    assert audit(["attention.d.1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "Lemma D.1" in lines[0] and "class A" in lines[0]
    words = [line.split()[0] for line in lines[1:]]
    of_clause = ["instance", "printed", "corrected", "reference"]
    assert words == [*of_clause, "attention.A3:", "consequence", "authors", "but", "elsewhere"]
    assert audit(["dag.eq1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5, "a clause that holds has no error"
    assert audit(["attention.d.l"]) == 2
    assert "nearest is attention.d." in capsys.readouterr().err
    assert audit(["scalar"]) == 0 and "scalar.thm3" in capsys.readouterr().out


def test_command_shows_what_the_table_of_notation_leaves_out(capsys):
    (erratum,) = (e for e in errata("hsr")["erratum"] if (e["kind"], e["number"]) == ("C", 6))
    assert audit(["hsr.C6"]) == 0
    shown = capsys.readouterr().out
    places = [clause.place for clause in clauses("hsr") if clause.root == erratum["id"]]
    assert len(places) > 1 and all(place in shown for place in places)
    for text in ("consequence", "view", "elsewhere"):
        assert erratum[text] in shown
    assert EXAMPLES[erratum["id"]]()["reference"] in shown.partition("hsr.C6:")[2]
    page = (DOCS / "hsr.md").read_text(encoding="utf-8")
    assert erratum["view"] not in page and "`hess-run audit hsr.C1`" in page


def test_a_failing_check_is_a_row_that_says_so():
    def broken():
        raise RuntimeError("no instance")

    row = check(Clause("attention.x", "Lemma X", "x", broken))
    assert row["verdict"] == "not checked" and "no instance" in row["status"]


def test_zeros_by_construction_are_measured_where_they_are_and_where_not():
    """One network of each sort; the claim falls when a zero is none, or when nothing is left of
    what is no zero."""
    case = {c.network: c for c in zeros.networks()}
    assert len(case) == 14 and sum(c.flat for c in case.values()) == 10
    names = ("k=1 cat+relu", "k=1 cat+silu", "relu_mlp", "attention")
    rows = [zeros.row(case[name], 42) for name in names]
    assert [claim.verdict for claim in zeros.claims(rows)] == ["confirmed"]
    for wrong in ({"flat": True, "share": 1e-6}, {"flat": False, "share": 1e-9}):
        assert [claim.verdict for claim in zeros.claims([*rows, wrong])] == ["refuted"]
    assert zeros.claims([]) == []
