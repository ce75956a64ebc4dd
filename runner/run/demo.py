"""`hess-run demo`: one published formula, measured now."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner.contract import Experiment, quoted, setting, typed_path
from runner.run.command_line import Call
from runner.run.config.jobs import build_jobs
from runner.run.config.overrides import arguments
from runner.run.execute import run
from runner.run.keys import Keys
from runner.store.job import Job, check_outputs, claim_outputs

EXPERIMENT = "scalar_spectrum"
CELLS = ("part=[cells,bias]", "seed=42,43,44,45,46")
FIGURE = "fig2_relu_cells"
CLAIM = "relu_closed_form"
STATEMENT = (
    "every Hessian eigenvalue of a ReLU network with one hidden layer and scalar input has a "
    "closed form"
)
TABLE = "relu_cells"
FORMULA = "eigenvalue"
OURS = "dense"
"""Table of the cell, its column with the values of the paper's formula, and its column with ours.
"""
OUTPUTS = "outputs/demo"


@dataclass(frozen=True, kw_only=True)
class Demo(Keys):
    """Where the figure goes."""

    outputs: str = setting(OUTPUTS, help="folder of the cells, the figure and the page")


def demo_command(call: Call) -> int:
    """hess-run demo [outputs=PATH]

    Measures ten cells of scalar_spectrum (a few seconds, no data set): every Hessian eigenvalue of
    a ReLU network by the paper's formula and by automatic differentiation. Prints the claim, the
    published and our values and the verdict, and draws the figure into PATH. A second call only
    draws.
    """
    return demo(typed_path("outputs", call.keys.outputs))


def demo(outputs: Path) -> int:
    """Measure the cells that are not stored, report them, and print both sides. 0, or 1 when a cell
    failed."""
    words = [f"experiment={EXPERIMENT}", *CELLS, quoted("outputs", outputs)]
    # measured now, that is the point
    jobs = [replace(job, published=False) for job in build_jobs(arguments(words, multirun=True))]
    check_outputs(outputs)
    claim_outputs(outputs)
    begin = time.monotonic()
    missing = sum(not job.store.has(cell_id) for job in jobs for cell_id, _ in job.cells())
    print(f"{jobs[0].experiment.title} (paper: {jobs[0].experiment.paper})")
    print(
        f"  measuring {missing} small cells" if missing else "  stored; drawing the figure",
        flush=True,
    )
    for job in jobs:
        outcome = run(job)
        if outcome.interrupted:
            raise KeyboardInterrupt
        if outcome.failed:
            print(f"  a cell failed: {job.store.failed()[outcome.failed[0]]['error']}")
            return 1
    for line in [
        *_report(jobs),
        f"{time.monotonic() - begin:.0f} s. Next: hess-run list, hess-run experiment=NAME",
    ]:
        print(line)
    return 0


def _report(jobs: Sequence[Job]) -> list[str]:
    """Report the cells with one figure, compared with the grid of these cells alone; lines that say
    what is in it."""
    from runner.report.answers.judged import Judged
    from runner.report.collect import collect
    from runner.report.output.start import write_overview
    from runner.report.update import Update

    def narrowed(name: str, profile: str) -> Experiment:
        return jobs[0].experiment

    made = Update(Judged(collect(jobs, narrowed))).anew()
    made.write(FIGURE)
    write_overview(jobs[0].outputs)
    folder = made.directory
    claim = made.findings.claims.set_index("name").loc[CLAIM]
    rows = made.material.shown.tables[TABLE]

    def extremes(column: str) -> str:
        return f"largest {rows[column].max():.14f}, smallest {rows[column].min():.14f}"

    return [
        "",
        f"claim      {STATEMENT} ({claim['where']})",
        (
            f"published  {extremes(FORMULA)}: the paper's formula, "
            f"{len(rows)} eigenvalues of {len(jobs)} networks"
        ),
        f"ours       {extremes(OURS)}: the Hessian by automatic differentiation, an eigensolver",
        f"verdict    {claim['verdict']}: largest relative difference "
        f"{claim['statistic']:.1e}, "
        f"criterion {claim['threshold']}",
        "",
        f"figure     {folder / 'figures' / FIGURE}.png",
        f"page       {folder / 'index.html'}",
    ]
