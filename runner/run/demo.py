"""`hess-run demo`: one cell of the paper's protocol measured now, its figure, and the paper's words beside it."""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from runner.contract import Experiment
from runner.run import config
from runner.run.call import Call
from runner.run.execute import run
from runner.store.job import Job
from runner.store.outputs import check_outputs, claim_outputs

EXPERIMENT = "ws_bound"
CELL = ("part=[search]", "protocol=[fitted]", "activation=[sigmoid]", "hidden=[3]")
FIGURE = "fig02_bound_and_eigenvalue"
CLAIMS = ("Theorem 1", "tightness")
"""Names of the claims shown: the inequality itself, and how much it gives away."""
VALUES = ("converged", "unique", "lambda_sup_smallest")
"""Metrics of the scorecard shown."""
OUTPUTS = "outputs/demo"


def demo_command(call: Call) -> int:
    """Show one result, measured now."""
    return demo(Path(call.keys.get("outputs", OUTPUTS)))


def demo(outputs: Path) -> int:
    """Measure the cell unless it is stored, report it, and print both sides. 0, or 1 when the cell failed."""
    words = [f"experiment={EXPERIMENT}", *CELL, f"outputs='{outputs}'"]
    job = replace(config.build_jobs(config.arguments(words))[0], published=False)  # measured now, that is the point
    check_outputs(job.outputs)
    claim_outputs(job.outputs)
    begin = time.monotonic()
    stored = all(job.store.has(cell_id) for cell_id, _ in job.cells())
    about = sum(cell.seconds for _, cell in job.cells())
    print(f"{job.experiment.title} (paper: {job.experiment.paper}).")
    print("  one cell at the paper's protocol, " + "; ".join(cell.label for _, cell in job.cells()))
    print("  stored; drawing" if stored else f"  measuring, about {about:.0f} s of one core", flush=True)
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
    """Report the cell with its one figure, held against the grid of this cell alone; lines that say what is in it."""
    from runner.report.update import report
    from runner.report.write import write_overview

    def narrowed(name: str, profile: str) -> Experiment:
        return job.experiment

    collection, _ = report([job], narrowed, only_figure=FIGURE)
    write_overview(job.outputs)
    folder = collection.scope.folder
    lines = ["", "the paper says                                                here"]
    for row in _rows(folder / "claims.csv", "name", CLAIMS):
        lines.append(f"  {row['where']}: {row['statement']}")
        found = f"{row['threshold']}, found {float(row['statistic']):.3g}"
        lines.append(f"    {row['verdict']} ({found}): {row['detail']}")
    hidden = str(getattr(job.experiment, "hidden", [""])[0])
    for row in _rows(folder / "scorecard.csv", "metric", VALUES):
        if row["protocol"] == "fitted" and row["hidden"] == hidden:
            where = f"  {row['source']}: {row['metric']} = {float(row['paper_mean']):g}"
            lines.append(f"{where:<62}{float(row['measured_mean']):.4g} ({row['verdict']})")
    return [
        *lines,
        "one data set out of many: verdicts on data need several (seed=42,43,44,45,46)",
        "",
        f"figure  {folder / 'figures' / FIGURE}.png",
        f"page    {folder / 'index.html'}",
    ]


def _rows(path: Path, key: str, wanted: Sequence[str]) -> list[dict[str, str]]:
    """Rows of a CSV file whose `key` is wanted, in the order wanted."""
    with open(path, newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    return [row for name in wanted for row in rows if row[key] == name]
