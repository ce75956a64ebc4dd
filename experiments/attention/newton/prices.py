"""What a multiply-add of each method costs in processor time, so that the contest can be held at equal time.

Seconds do not repeat from machine to machine, counts do. The contest stores counts; here every method takes a few steps
from the contest's own blind starts, all timed in one process, and seconds over counts is its price: with all starts
stepped together, as in the contest (L-BFGS cannot: one after the other), and one start at a time, where nobody shares
the interpreter's overhead.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from experiments.attention.newton.contest import BLIND, run_method, starts
from experiments.attention.newton.problem import draw
from runner.contract import Context

if TYPE_CHECKING:
    from experiments.attention.newton.settings import AttentionNewton

TOGETHER, ALONE = "together", "one by one"


def price_rows(setup: AttentionNewton, n: int, d: int, ctx: Context) -> list[dict[str, Any]]:
    """A row per method without continuation (which repeats the same steps), way of running and repeat."""
    problem = draw(n, d, 0.0, setup.score_scale, 0, ctx)
    start, blocks = starts(setup, problem, ctx.torch_generator(f"attention_newton blind starts 0 {n} {d}"))
    blind = start[blocks[BLIND]]
    short = replace(setup, steps={name: min(cap, setup.price_steps) for name, cap in setup.steps.items()})
    methods = [method for method in setup.method if "," not in method]
    rows: list[dict[str, Any]] = []
    for number, method in enumerate(methods):
        ctx.progress(number, len(methods), method)
        run_method(short, method, problem, blind[:1], 0.0)  # first calls pay for what later ones find ready
        few = blind[: setup.lbfgs_starts]
        for repeat in range(setup.price_repeats):
            for how, batches in ((TOGETHER, [blind]), (ALONE, list(few.split(1)))):
                begun = time.process_time()
                work = sum(float(run_method(short, method, problem, batch, 0.0).work.sum()) for batch in batches)
                seconds = time.process_time() - begun
                about = {"method": method, "how": how, "repeat": repeat, "starts": sum(len(b) for b in batches)}
                rows.append(about | {"work": work, "cpu_seconds": round(seconds, 6)})
    return rows
