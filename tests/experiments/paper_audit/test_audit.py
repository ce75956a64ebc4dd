"""One suite for every audited paper: agreement of every clause, completeness of what is said,
coverage, pages."""

import functools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.paper_audit import checks, effects, three_layer
from experiments.paper_audit.checks import Outcome
from experiments.paper_audit.dag import zeros
from experiments.paper_audit.hsr import gradients
from experiments.paper_audit.measure import audit, check
from experiments.paper_audit.pages import entries
from experiments.paper_audit.papers import CLASSES, Clause, Paper, papers, verdict
from experiments.paper_audit.report import claims, judged
from experiments.paper_audit.ws_bound import squares
from runner import results
from tests.experiments.paper_audit.places import inventory, missing

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs" / "errata"
PAPERS = papers()
EVERY = [(of, clause) for of in PAPERS for clause in of.clauses]
BY_ID = {clause.id: (of, clause) for of, clause in EVERY}
PREFIX = {"ws_bound": "ws"}


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of an instance, evaluated once for the same tensors."""
    known: dict[tuple[int, ...], tuple[Any, Any]] = {}

    def call(instance: three_layer.Instance, *rest: Any) -> Any:
        of = (instance.theta, instance.x, instance.q, *rest)
        key = (*map(id, of), instance.name)
        if key not in known:
            known[key] = (
                of,
                function(instance, *rest),
            )  # kept with their objects, so that no other gets their id
        return known[key][1]

    return call


@pytest.fixture(autouse=True, scope="module")
def _evaluated_once() -> Iterator[None]:
    """The searches of several inequalities share their starts, and a network its samples and
    derivatives. Searches take a third of the audit's steps: they find here what a change breaks,
    there what a paper got wrong."""
    with pytest.MonkeyPatch.context() as patch:
        attack, ladder = checks.attack, three_layer._ladder
        patch.setattr(
            checks, "attack", lambda f, start, steps=80, *rest: attack(f, start, steps // 3, *rest)
        )
        patch.setattr(squares, "grams", once(squares.grams))
        patch.setattr(gradients, "gradient_of", once(gradients.gradient_of))
        patch.setattr(three_layer, "_ladder", functools.cache(lambda name: tuple(ladder(name))))
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
def outcome(name: str) -> Outcome:
    return BY_ID[name][1].check()


@pytest.mark.parametrize("name", BY_ID)
def test_agreement_follows_from_the_numbers(name: str, published: Path) -> None:
    _, clause = BY_ID[name]
    found = outcome(name)
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
@pytest.mark.parametrize("name", [name for name, (_, clause) in BY_ID.items() if clause.without])
def test_the_check_fails_without_its_hypothesis(name: str) -> None:
    for what, without in BY_ID[name][1].without.items():
        assert without().agreement != "holds", f"the check passes without its hypothesis: {what}"


@pytest.mark.parametrize("of", PAPERS, ids=lambda of: of.key)
def test_what_is_said_is_complete(of: Paper) -> None:
    ids = [clause.id for clause in of.clauses]
    assert len(set(ids)) == len(ids) and all(
        i.startswith(PREFIX.get(of.key, of.key) + ".") for i in ids
    )
    assert all(clause.place and clause.statement for clause in of.clauses)
    assert len({e.id for e in of.errata}) == len(of.errata)
    for erratum in of.errata:
        assert (
            erratum.kind in CLASSES and erratum.printed and erratum.corrected and erratum.place
        ), erratum.id
        assert erratum.consequence and erratum.view, (
            f"{erratum.id}: the authors' view stands in the entry"
        )
        assert erratum.kind != "A" or erratum.experiments, (
            f"{erratum.id}: what it changes in the paper's experiments"
        )
        assert [f for f in of.clauses if f.root == erratum.id], (
            f"{erratum.id}: no clause has this root cause"
        )
    assert all(place and reason for place, reason in of.unchecked.items())


@pytest.mark.parametrize("of", PAPERS, ids=lambda of: of.key)
def test_every_numbered_statement_has_a_row_or_a_reason(of: Paper) -> None:
    assert len(inventory(of.key)) > 60
    assert missing(of) == []


def test_scan_and_notation_are_never_counted_as_wrong() -> None:
    for of, clause in EVERY:
        kind = of.kind(clause)
        if kind in ("C", "D", "E"):
            assert check_verdict(of, clause) != "major error"


@pytest.mark.parametrize("stored", [False, True], ids=["produced", "published"])
def test_confirmed_is_decided_by_the_numbers_shown(stored: bool, published: Path) -> None:
    """A confirmed clause shows a statistic within its threshold, a refuted one a statistic beyond
    it; a line that is blank is not confirmed."""
    if stored:
        table = results.load("paper_audit")["formulas"]
        texts = table.fillna({"class": "", "uncounted": "", "correction": ""})
        rows = [judged(row) for row in texts.to_dict("records")]
    else:
        rows = []
        for of, clause in EVERY:
            known = replace(clause, check=functools.partial(outcome, clause.id), without={})
            rows.append(check(of, known) | {"source": of.key})
    made = {claim.name: claim for claim in claims(rows)}
    assert len(made) == len(EVERY)
    for name, claim in made.items():
        if claim.verdict == "confirmed":
            assert claim.statistic <= float(claim.threshold), name
        elif claim.verdict in ("minor error", "refuted"):
            assert claim.statistic > float(claim.threshold), name
    assert made["attention.c.14.part_2"].verdict == "not comparable"
    assert "rho^7" in made["dag.remark27.number"].detail


def check_verdict(of: Paper, clause: Clause) -> str:
    return verdict(clause.expected, of.kind(clause), clause.uncounted)


def committed() -> list[dict]:
    return json.loads(
        (ROOT / "outputs" / "published" / "paper_audit" / "errata.json").read_text(encoding="utf-8")
    )


def test_cells_beside_the_protocol_enter_no_erratum() -> None:
    """Rounding, orders of other seeds and further seeds are measured in the same store; the paper
    has none of them."""
    own = {
        "seed": 42,
        "params": {"activation": "silu"},
        "settings": {"training": {"order": "published"}},
    }
    beside = [
        own | {"settings": {"training": {"perturbation": 1e-7}}},
        own | {"settings": {"training": {"order_seed": 43}}},
        own | {"seed": 100},
        own | {"params": {"activation": "gelu"}},
    ]
    assert [effects._in_protocol(meta, {"activation": "silu"}) for meta in (own, *beside)] == [
        True,
        *[False] * 4,
    ]


def _words(text: str) -> str:
    return re.sub(r"[-−+]?\d+(\.\d+)?(e[-+]?\d+)?", "#", text)


@pytest.mark.parametrize("of", PAPERS, ids=lambda of: of.key)
def test_committed_errata_are_those_of_the_code(of: Paper, published: Path) -> None:
    """Texts, classes and places to the letter; worked checks, of clauses that are quick to check,
    to their digits."""
    written = [entry for entry in committed() if entry["paper"] == of.key]
    quick = [f for f in of.clauses if f.root][:8]
    once = {f.id: replace(f, check=functools.partial(outcome, f.id), without={}) for f in quick}
    rows = [check(of, once[f.id]) if f in quick else _blank(of, f) for f in of.clauses]
    fresh = entries(of, rows)
    assert [e["place"] for e in fresh] == [e["place"] for e in written]
    page = (DOCS / f"{of.key}.md").read_text(encoding="utf-8")
    for new, old in zip(fresh, written, strict=True):
        for key in (
            "id",
            "class",
            "printed",
            "corrected",
            "elsewhere",
            "consequence",
            "authors_view",
            "also_affects",
        ):
            assert new[key] == old[key], f"{new['id']}: run make errata"
        assert _words(new["experiments"]) == _words(old["experiments"]), (
            f"{new['id']}: run make errata"
        )
        assert not re.search(r"\bnan\b", old["experiments"]), (
            f"{new['id']}: a number that is not stored"
        )
        assert (
            new["class"] == "E"
            or new["printed"].replace("|", "\\|") in page
            or new["printed"] in page
        )
        for mine, theirs in zip(new["worked_checks"], old["worked_checks"], strict=False):
            if mine["instance"] and any(f.root == new["id"] and f in quick for f in of.clauses):
                assert {k: _words(v) for k, v in mine.items()} == {
                    k: _words(v) for k, v in theirs.items()
                }


def _blank(of: Paper, clause: Clause) -> dict:
    row = dict.fromkeys(("instance", "printed", "corrected", "reference"), "")
    return row | {
        "root": clause.root,
        "place": clause.place,
        "verdict": check_verdict(of, clause),
    }


def unfolded(text: str) -> str:
    """What a reader sees before unfolding anything; folds may hold folds."""
    depth, kept = 0, []
    for part in re.split(r"(</?details>)", text):
        depth += {"<details>": 1, "</details>": -1}.get(part, 0)
        kept += [part] if depth == 0 and part != "</details>" else []
    return "".join(kept)


def test_pages_are_short() -> None:
    """Outside what is folded stand class A and the table of class B."""
    for of in PAPERS:
        text = (DOCS / f"{of.key}.md").read_text(encoding="utf-8")
        open_text = unfolded(text)
        words = [word for word in open_text.split() if re.search(r"\w", word)]
        assert len(words) <= 1500, of.key
        assert not re.search(r"\b(printed|corrected|reference) nan\b", text), of.key
        assert text.index("What survives") < text.index("\n## "), "a page begins with what survives"


def test_command_prints_five_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(["attention.d.1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and "Lemma D.1" in lines[0] and "class A" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == [
        "instance",
        "printed",
        "corrected",
        "reference",
    ]
    assert audit(["attention.d.l"]) == 2
    assert "nearest is attention.d." in capsys.readouterr().err
    assert audit(["scalar"]) == 0 and "scalar.thm3" in capsys.readouterr().out


def test_a_failing_check_is_a_row_that_says_so() -> None:
    def broken() -> Outcome:
        raise RuntimeError("no instance")

    row = check(PAPERS[0], Clause("attention.x", "Lemma X", "x", broken))
    assert row["verdict"] == "not checked" and "no instance" in row["status"]


def test_zeros_by_construction_are_measured_where_they_are_and_where_not() -> None:
    """One network of each sort; the claim falls when a zero is none, or when nothing is left of
    what is no zero."""
    case = {c.network: c for c in zeros.networks()}
    assert len(case) == 14 and sum(c.flat for c in case.values()) == 10
    rows = [
        zeros.row(case[name], 42)
        for name in ("k=1 cat+relu", "k=1 cat+silu", "relu_mlp", "attention")
    ]
    assert [claim.verdict for claim in zeros.claims(rows)] == ["confirmed"]
    for wrong in ({"flat": True, "share": 1e-6}, {"flat": False, "share": 1e-9}):
        assert [claim.verdict for claim in zeros.claims([*rows, wrong])] == ["refuted"]
    assert zeros.claims([]) == []
