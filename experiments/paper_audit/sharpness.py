"""How sharp the audit is: wrong signs, factors, powers, indices and transposes are injected into the printed formulas,
hypotheses are dropped, and the share that the checks catch is stated.

A mutant changes one node of the syntax tree of a module that holds printed formulas; the paper's package is imported
anew with it, and the formulas that reach the changed function are checked. It is caught when one of them no longer
has the agreement that is expected of it, or, where the print is wrong anyway, gives another error or another value
for its instance, which are committed. A dropped hypothesis is caught when the check without it fails. Bounds that are
far from attained are not changed: a wrong constant in them may still be true.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.abc
import importlib.util
import random
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from experiments.paper_audit import held_out
from experiments.paper_audit.formula import Formula, Outcome, Paper
from experiments.paper_audit.mutation import KINDS, Mutation, mutations
from experiments.paper_audit.papers import ROOM, keys, paper

PACKAGE = "experiments.paper_audit"


@dataclass(frozen=True)
class Target:
    """Modules of one paper that hold printed formulas, and those that an import with a mutant leaves as they are."""

    modules: tuple[str, ...]
    kept: tuple[str, ...] = ()
    only: tuple[str, ...] = field(default=())  # functions to change; empty: all of them


TARGETS = {
    "ws_bound": Target(
        ("ws_bound.terms", "ws_bound.squares", "ws_bound.activations", "three_layer.pair_terms", "ws_bound.traces"),
        ("three_layer.oracle", "three_layer.checks"),
        (
            *("block_ww", "block_vv", "block_vw", "block_wv", "_square", "_lemma_four", "_lemma_five", "grams"),
            *("_sigmoid", "_tanh", "_softplus", "_gelu", "phi_matrix", "psi_matrix", "_trace_ww", "_trace_vv"),
            *("_gradient", "_summed_square", "_block_square"),
        ),
    ),
    "hsr": Target(
        ("three_layer.pair_terms", "hsr.derivatives", "hsr.gradients"),
        ("three_layer.oracle", "three_layer.checks"),
        (
            *("a_phi", "b_phi", "c_phi", "d_phi", "a_psi", "b_psi", "c_psi", "d_psi", "e_phi", "f_phi", "g_phi"),
            *("e_psi", "f_psi", "w_phi", "w_psi", "w_omega", "v_phi", "v_psi", "v_omega", "_by_w", "_by_v"),
            *("_trace", "_square", "theorem_one", "<lambda>"),
        ),
    ),
    "dag": Target(
        ("dag.printed", "dag.parameters", "dag.blocks_of_attention", "dag.recursion", "dag.residual", "dag.ranks"),
        ("dag.networks", "dag.oracle", "dag.graphs", "dag.compare"),
        (
            *("equation_2", "one_sided", "compute", "routed", "path_jacobian", "sources", "algorithm_1", "pure"),
            *("third", "mixed", "right_5", "softmax_second", "softmax_first", "unrelated_with_exact", "product"),
            *("diagonal_with_exact", "example_6", "figure_1", "boundary", "theorem_93", "proposition_92"),
            *(
                "relative_rank",
                "allowed",
                "stable",
                "effective",
                "power_rate",
                "algorithm_4",
                "hutchinson",
                "total_of_paths",
            ),
            *("products", "batch_norm", "rates", "footnote_2", "equation_11", "i_1", "equation_5"),
        ),
    ),
    "scalar": Target(
        ("scalar.linear_terms", "scalar.relu", "scalar.bias_terms", "scalar.linear"),
        ("scalar.cases", "scalar.oracle"),
        (
            *("trace", "outliers", "spectrum", "outlier_vector", "sharpness_form", "right_matrix", "right_schur"),
            *("woodbury", "eq17_19", "eq24_25", "nu", "eq26", "eq27", "eq31", "eq32", "cell_matrix", "cell_values"),
            *("gradient", "single_hessian", "average_hessian", "sample_hessian", "block_hessian", "low_rank", "eq83"),
            *("eq84", "form", "eq85", "eq86_96", "simplified", "factored", "pair", "depressed", "triple", "output"),
        ),
    ),
    "attention": Target(
        ("attention.tables", "attention.case_one", "attention.case_two", "attention.gradients", "attention.matrix"),
        ("attention.terms",),
        ("<lambda>", "df01", "ds", "_dc", "_h2", "_chain", "_second"),
    ),
}


@dataclass(frozen=True)
class Trial:
    """One injected error: where, what, and which formula caught it ("" for none)."""

    paper: str
    kind: str
    place: str
    change: str
    caught_by: str


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a changed syntax tree."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.name, self.tree = name, tree

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

    def exec_module(self, module: types.ModuleType) -> None:
        exec(compile(self.tree, self.name, "exec"), module.__dict__)


@contextmanager
def changed(key: str, name: str, tree: ast.Module) -> Iterator[Paper]:
    """The paper with one of its modules replaced; everything is as before afterwards."""
    prefixes = (f"{PACKAGE}.{key}", f"{PACKAGE}.three_layer")
    kept = {f"{PACKAGE}.{m}" for m in TARGETS[key].kept}
    own = [m for m in sys.modules if m.startswith(prefixes) and m not in kept]
    saved = {m: sys.modules.pop(m) for m in own}
    finder = _Finder(f"{PACKAGE}.{name}", tree)
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module(f"{PACKAGE}.{key}").PAPER
    finally:
        sys.meta_path.remove(finder)
        for m in [m for m in sys.modules if m.startswith(prefixes) and m not in kept]:
            del sys.modules[m]
        sys.modules.update(saved)
        for m, module in saved.items():
            parent, _, child = m.rpartition(".")
            setattr(sys.modules[parent], child, module)


def reached(check: Callable[..., Any]) -> set[tuple[str, str, int]]:
    """(module, function name, first line) of all code that a check can reach, through closures, globals, containers."""
    found: set[tuple[str, str, int]] = set()
    seen: set[int] = set()

    def visit(item: Any) -> None:
        if id(item) in seen or isinstance(item, (str, int, float, bool, bytes, type(None))):
            return
        seen.add(id(item))
        if isinstance(item, types.FunctionType):
            if not item.__module__.startswith(PACKAGE):
                return
            code(item.__code__, item.__globals__, item.__module__)
            for cell in item.__closure__ or ():
                visit(cell.cell_contents)
        elif isinstance(item, types.MethodType):
            visit(item.__func__)
            for value in vars(item.__self__).values() if hasattr(item.__self__, "__dict__") else ():
                visit(value)
        elif isinstance(item, type):
            for value in vars(item).values() if item.__module__.startswith(PACKAGE) else ():
                visit(value.fget if isinstance(value, property) else value)
        elif isinstance(item, functools.partial):
            for part in (item.func, *item.args, *item.keywords.values()):
                visit(part)
        elif hasattr(item, "__wrapped__"):
            visit(item.__wrapped__)
        elif isinstance(item, (tuple, list, set, frozenset)):
            for part in item:
                visit(part)
        elif isinstance(item, dict):
            for part in item.values():
                visit(part)
        elif type(item).__module__.startswith(PACKAGE) and hasattr(item, "__dict__"):
            for part in vars(item).values():
                visit(part)

    def code(block: types.CodeType, space: dict[str, Any], module: str) -> None:
        found.add((module, block.co_name, block.co_firstlineno))
        for name in block.co_names:
            if name in space and not isinstance(space[name], types.ModuleType):
                visit(space[name])
            for other in (v for v in (space.get(n) for n in block.co_names) if isinstance(v, types.ModuleType)):
                if other.__name__.startswith(PACKAGE) and hasattr(other, name):
                    visit(getattr(other, name))
        for constant in block.co_consts:
            if isinstance(constant, types.CodeType):
                code(constant, space, module)

    visit(check)
    return found


def sites(key: str, kinds: Sequence[str] = KINDS) -> list[tuple[str, Mutation]]:
    """(module, mutation) of every place that can be changed, in the order of the modules."""
    target = TARGETS[key]
    found = []
    for name in target.modules:
        source = ROOM.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8")
        found += [(name, m) for m in mutations(source, target.only, kinds)]
    return found


def trials(key: str, count: int) -> Iterator[Trial]:
    """`count` mutants of one paper, spread evenly over its places, then its dropped hypotheses."""
    own = paper(key)
    places = sites(key)
    yield from _tried(key, [places[k * len(places) // count] for k in range(min(count, len(places)))])
    for formula in own.formulas:
        for what, check in formula.dropped:
            caught = formula.id if check().agreement != "holds" else ""
            yield Trial(key, "hypothesis", formula.place, f"without {what}", caught)


def held_out_trials(key: str, count: int, seed: int) -> Iterator[Trial]:
    """`count` mutants of one paper of the kinds that no check was refined on: a random one of each kind in turn."""
    chance = random.Random(f"{key} {seed}")
    by_kind: dict[str, list[tuple[str, Mutation]]] = {kind: [] for kind in held_out.KINDS}
    for name, mutation in sites(key, held_out.KINDS):
        by_kind[mutation.kind].append((name, mutation))
    for found in by_kind.values():
        chance.shuffle(found)
    turns = [found[k] for k in range(count) for found in by_kind.values() if k < len(found)]
    yield from _tried(key, turns[:count])


def _tried(key: str, chosen: Sequence[tuple[str, Mutation]]) -> Iterator[Trial]:
    own = paper(key)
    reach = {f.id: reached(f.check) for f in own.formulas}
    for name, mutation in chosen:
        module = f"{PACKAGE}.{name}"
        near = [f.id for f in own.formulas if (module, mutation.function, mutation.start) in reach[f.id]]
        near.sort(key=lambda i: len(reach[i]))
        yield Trial(key, mutation.kind, f"{name}:{mutation.line}", mutation.change, _catch(key, name, mutation, near))


def _catch(key: str, name: str, mutation: Mutation, near: Sequence[str], limit: int = 12) -> str:
    """Id of the first formula that notices the mutant; those whose check reaches least come first."""
    source = ROOM.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    for formula in paper(key).formulas:
        if formula.id in near[:limit] and formula.expected != "holds":
            _known(key, formula.id)  # before the mutant takes the paper's place
    try:
        with changed(key, name, mutation.apply(source)) as mutant:
            formulas = {f.id: f for f in mutant.formulas}
            return next((i for i in near[:limit] if _notices(key, formulas[i])), "")
    except Exception as error:
        return f"import: {type(error).__name__}"  # the module cannot even be read


@functools.cache
def _known(key: str, formula: str) -> Outcome:
    """Outcome of the formula as it is."""
    return next(f for f in paper(key).formulas if f.id == formula).check()


def _notices(key: str, formula: Formula) -> bool:
    try:
        found = formula.check()
        if found.agreement != formula.expected:
            return True
        if formula.expected == "holds":
            return False
        known = _known(key, formula.id)
        return found.witness != known.witness or abs(found.printed - known.printed) > 1e-6 * abs(known.printed)
    except Exception:  # a formula that cannot be evaluated is a row that says so
        return True


def rows(count: int = 50) -> list[dict[str, Any]]:
    """The table of the audit's sharpness: one row for each injected error."""
    return _table(trial for key in keys() for trial in trials(key, count))


def held_out_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """The same of the kinds that the checks were not refined on (`held_out`)."""
    return _table(trial for key in keys() for trial in held_out_trials(key, count, seed))


def _table(found: Iterable[Trial]) -> list[dict[str, Any]]:
    return [
        {
            "paper": t.paper,
            "kind": t.kind,
            "place": t.place,
            "change": t.change,
            "caught": bool(t.caught_by),
            "by": t.caught_by,
        }
        for t in found
    ]
