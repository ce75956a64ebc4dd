"""`hess-run demo`: measure one cell at the paper's settings and compare it with the paper's formula."""

from __future__ import annotations

import csv
import time
from dataclasses import replace
from pathlib import Path

from runner.contract import Experiment
from runner.run import config
from runner.run.call import Call
from runner.run.execute import run
from runner.store.job import Job
from runner.store.outputs import check_outputs, claim_outputs

EXPERIMENT = "scalar_spectrum"
CELL = "part=[cells]"
FIGURE = "fig2_relu_cells"
CLAIM = "relu_closed_form"
PLAIN = "every Hessian eigenvalue of a ReLU network with one hidden layer and scalar input has a closed form"
TABLE, FORMULA, OURS = "relu_cells", "eigenvalue", "dense"
"""Table of the cell, its column with the values of the paper's formula, and its column with ours."""
OUTPUTS = "outputs/demo"


def demo_command(call: Call) -> int:
    """Show one result, measured now."""
    return demo(Path(call.keys.get("outputs", OUTPUTS)))


def demo(outputs: Path) -> int:
    """Measure the cell unless it is stored, report it, and print both sides. 0, or 1 when the cell failed."""
    arguments = config.arguments([f"experiment={EXPERIMENT}", CELL, f"outputs='{outputs}'"])
    job = replace(config.build_jobs(arguments)[0], published=False)  # measured now, that is the point
    check_outputs(job.outputs)
    claim_outputs(job.outputs)
    begin = time.monotonic()
    stored = all(job.store.has(cell_id) for cell_id, _ in job.cells())
    print(f"{job.experiment.title} (paper: {job.experiment.paper})")
    print("  stored; drawing the figure" if stored else "  measuring one cell on one core", flush=True)
    outcome = run(job)
    if outcome.interrupted:
        raise KeyboardInterrupt
    if outcome.failed:
        print(f"  the cell failed: {job.store.failed()[outcome.failed[0]]['error']}")
        return 1
    for line in [*_report(job), f"{time.monotonic() - begin:.0f} s. Next: hess-run list, hess-run experiment=NAME"]:
        print(line)
    return 0


def _report(job: Job) -> list[str]:
    """Report the cell with its one figure, compared with the grid of this cell alone; lines that say what is in it."""
    from runner.report.update import report
    from runner.report.write import write_overview

    def narrowed(name: str, profile: str) -> Experiment:
        return job.experiment

    collection, _ = report([job], narrowed, only_figure=FIGURE)
    write_overview(job.outputs)
    folder = collection.scope.folder
    claim = next(row for row in _rows(folder / "claims.csv") if row["name"] == CLAIM)
    rows = _rows(folder / f"{TABLE}.csv")

    def extremes(column: str) -> str:
        values = [float(row[column]) for row in rows]
        return f"largest {max(values):.14f}, smallest {min(values):.14f}"

    return [
        "",
        f"claim      {PLAIN} ({claim['where']})",
        f"published  {extremes(FORMULA)}: the paper's formula, {len(rows)} eigenvalues",
        f"ours       {extremes(OURS)}: the Hessian by automatic differentiation, an eigensolver",
        f"verdict    {claim['verdict']}: largest relative difference {float(claim['statistic']):.1e}, "
        f"criterion {claim['threshold']}",
        "",
        f"figure     {folder / 'figures' / FIGURE}.png",
        f"page       {folder / 'index.html'}",
    ]


def _rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))
