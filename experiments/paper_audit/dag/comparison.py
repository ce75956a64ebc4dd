"""How a recursion of the DAG paper is compared with the blocks of the references."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

from experiments.paper_audit.checks import TOLERANCE, Check, Worked, digits, outcome_of, worked
from experiments.paper_audit.dag.instances import Instance, relative_error
from experiments.paper_audit.dag.oracle import Blocks, Example, examples, mean, stacked

Recursion = Callable[[Example], Blocks]


def averaged(case: Instance, recursion: Recursion) -> Blocks:
    """Batch mean of a recursion's blocks, one example at a time."""
    return mean(stacked([recursion(e) for e in examples(case)]))


def blocks_agree(
    cases: Callable[[], Iterable[Instance]],
    exact: Recursion,
    printed: Recursion,
    corrected: Recursion | None = None,
) -> Check:
    """The check of the largest relative error of any block, of the pairs that `printed` gives; the
    witness is the worst block."""

    def steps() -> Generator[Any, None, Worked | None]:
        witness = None
        for case in cases():
            truth = averaged(case, exact)
            found = averaged(case, printed)
            if not found:
                continue
            error = relative_error(found, truth)
            better = None
            if corrected:
                better = averaged(case, corrected)
                yield error, relative_error({pair: better[pair] for pair in found}, truth)
            else:
                yield error
            if error > TOLERANCE and witness is None:
                witness = _worst_block(case, truth, found, better)
        return witness

    return lambda: outcome_of(steps())


def _worst_block(case: Instance, truth: Blocks, found: Blocks, better: Blocks | None) -> Worked:
    errors = {}
    for pair, block in found.items():
        errors[pair] = float((block - truth[pair]).abs().max())
    v, w = max(errors, key=lambda pair: errors[pair])
    corrected = "" if better is None else digits(better[v, w])
    where = f"{case}: block ({v}, {w})"
    printed = digits(found[v, w])
    exact = digits(truth[v, w])
    return worked(where, printed, corrected, exact)


def true_blocks(e: Example) -> Blocks:
    return e.blocks


def true_gauss_newton(e: Example) -> Blocks:
    return e.gauss_newton


def true_tensor(e: Example) -> Blocks:
    return e.tensor
