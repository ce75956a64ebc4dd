"""How sharp the audit is: errors are injected into the printed formulas, and the share that the checks catch is stated.

A mutant changes one node of the syntax tree of a module that holds printed formulas; the paper's package is imported
anew with it, and the formulas that reach the changed function are checked. It is caught when one of them no longer
has the agreement that is expected of it, or, where the print is wrong anyway, gives another error, another mean error
or another value for its instance, which are committed. A dropped hypothesis is caught when the check without it fails.
Bounds that are far from attained are not changed: a wrong constant in them may still be true.

A change that leaves the value as it is, is no error. `equivalence` decides that before any check is asked; such a
change is listed with the reason and not counted, and it is tried all the same: none of them may be caught.
"""

from __future__ import annotations

import ast
import functools
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from experiments.paper_audit.formula import Formula, Outcome
from experiments.paper_audit.papers import keys, paper
from experiments.paper_audit.sharpness import equivalence, held_out, slips
from experiments.paper_audit.sharpness.injection import PACKAGE, changed, reached, source_of
from experiments.paper_audit.sharpness.mutation import KINDS, Mutation, mutations
from experiments.paper_audit.sharpness.targets import TARGETS

LIMIT = 30
"""Most formulas that are asked about one change."""


@dataclass(frozen=True)
class Trial:
    """One injected error: where, what, which formula caught it ("" for none), and why it is no error ("" if it is)."""

    paper: str
    kind: str
    place: str
    change: str
    caught_by: str
    same: str = ""


def sites(key: str, kinds: Sequence[str] = KINDS) -> list[tuple[str, Mutation]]:
    """(module, mutation) of every place that can be changed, in the order of the modules."""
    target = TARGETS[key]
    return [(name, m) for name in target.modules for m in mutations(source_of(name), target.only, kinds)]


def trials(key: str, count: int) -> Iterator[Trial]:
    """`count` mutants of one paper, spread evenly over its places, then its dropped hypotheses."""
    own = paper(key)
    places = sites(key)
    yield from _tried(key, [places[k * len(places) // count] for k in range(min(count, len(places)))])
    for formula in own.formulas:
        for what, check in formula.dropped:
            caught = formula.id if check().agreement != "holds" else ""
            yield Trial(key, "hypothesis", formula.place, f"without {what}", caught)


def drawn(key: str, kinds: Sequence[str], count: int, seed: int) -> Iterator[Trial]:
    """`count` errors of one paper of these kinds, a random one of each kind in turn, and the changes met on the way
    that are no errors."""
    chance = random.Random(f"{key} {seed}")
    by_kind: dict[str, list[tuple[str, Mutation]]] = {kind: [] for kind in kinds}
    for name, mutation in sites(key, kinds):
        by_kind[mutation.kind].append((name, mutation))
    for found in by_kind.values():
        chance.shuffle(found)
    longest = max(len(found) for found in by_kind.values())
    turns = [found[k] for k in range(longest) for found in by_kind.values() if k < len(found)]
    left = count
    for trial in _tried(key, turns):
        yield trial
        left -= not trial.same
        if not left:
            return


def _tried(key: str, chosen: Iterable[tuple[str, Mutation]]) -> Iterator[Trial]:
    own = paper(key)
    reach = {f.id: reached(f.check) for f in own.formulas}
    for name, mutation in chosen:
        module = f"{PACKAGE}.{name}"
        near = [f.id for f in own.formulas if (module, mutation.function, mutation.start) in reach[f.id]]
        near.sort(key=lambda i: len(reach[i]))
        same = unchanged(key, name, mutation, near[:LIMIT])
        caught = _catch(key, name, mutation, near[:LIMIT])
        yield Trial(key, mutation.kind, f"{name}:{mutation.line}", mutation.change, caught, same)


def unchanged(key: str, name: str, mutation: Mutation, near: Sequence[str]) -> str:
    """Why the change leaves the value as it is, "" where it does not or that cannot be decided; no verdict is asked."""
    source, one = source_of(name), key == "attention"
    try:
        found = equivalence.candidates(ast.parse(source), mutation.apply(source), mutation.path)
    except (AttributeError, IndexError, TypeError):
        return ""  # the change took away what lies on the way to it
    tree = equivalence.instrumented(source, mutation.path, found)
    seen = [equivalence.Seen() for _ in found]
    why: list[str] = []
    with _every_index(key), changed(key, name, tree, {equivalence.RECORD: equivalence.recorder(seen)}) as own:
        checks = {f.id: f.check for f in own.formulas}
        for place in near:
            try:
                checks[place]()
            except Exception:  # a symbol that has no value here: nothing is decided
                return ""
            why = [equivalence.reason(wanted, known, one) for wanted, known in zip(found, seen, strict=True)]
            if not any(why) and any(known.count >= equivalence.FEWEST for known in seen):
                return ""  # further instances can only add types
    return next((text for text in why if text), "")


@contextmanager
def _every_index(key: str) -> Iterator[None]:
    """The attention paper's clauses at every index tuple that their case admits, at two sizes."""
    if key != "attention":
        yield
        return
    from experiments.paper_audit.attention import terms

    saved = terms.SIZES, terms.TUPLES_PER_SIZE
    terms.SIZES, terms.TUPLES_PER_SIZE = ((3, 2),), 10**6
    try:
        yield
    finally:
        terms.SIZES, terms.TUPLES_PER_SIZE = saved


def _catch(key: str, name: str, mutation: Mutation, near: Sequence[str]) -> str:
    """Id of the first formula that notices the mutant; those whose check reaches least come first."""
    for formula in paper(key).formulas:
        if formula.id in near and formula.expected != "holds":
            _known(key, formula.id)  # before the mutant takes the paper's place
    try:
        with changed(key, name, mutation.apply(source_of(name))) as mutant:
            formulas = {f.id: f for f in mutant.formulas}
            return next((found for i in near if (found := _notices(key, formulas[i]))), "")
    except Exception as error:
        return f"import: {type(error).__name__}"  # the module cannot even be read


@functools.cache
def _known(key: str, formula: str) -> Outcome:
    """Outcome of the formula as it is."""
    return next(f for f in paper(key).formulas if f.id == formula).check()


def _notices(key: str, formula: Formula) -> str:
    """The formula's id where it notices, followed by the error where it cannot be evaluated; else ""."""
    try:
        found = formula.check()
    except Exception as error:  # a formula that cannot be evaluated is a row that says so
        return f"{formula.id}: {type(error).__name__}"
    if found.agreement != formula.expected:
        return formula.id
    if formula.expected == "holds":
        return ""
    known = _known(key, formula.id)
    other = any(
        abs(new - old) > 1e-6 * abs(old) for new, old in ((found.printed, known.printed), (found.mean, known.mean))
    )
    return formula.id if other or found.witness != known.witness else ""


def rows(count: int = 50) -> list[dict[str, Any]]:
    """The table of the audit's sharpness: one row for each injected error."""
    return _table(trial for key in keys() for trial in trials(key, count))


def held_out_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """The same of the kinds of the first held-out sample (`held_out`)."""
    return _table(trial for key in keys() for trial in drawn(key, held_out.KINDS, count, seed))


def slip_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """The same of the kinds of the second (`slips`)."""
    return _table(trial for key in keys() for trial in drawn(key, slips.KINDS, count, seed))


def _table(found: Iterable[Trial]) -> list[dict[str, Any]]:
    return [
        {
            "paper": t.paper,
            "kind": t.kind,
            "place": t.place,
            "change": t.change,
            "caught": bool(t.caught_by),
            "by": t.caught_by,
            "same": t.same,
        }
        for t in found
    ]
