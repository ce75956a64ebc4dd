"""Write docs/experiments.md, the table of experiments, from the published reports: `make readme`.

One row an experiment: what it reproduces, what held of the printed numbers and statements, and what
a seed costs.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from runner.report.output.manifest import read_manifest
from runner.run.config.experiment import preview
from runner.run.config.files import experiment_names
from runner.store.costs import Costs, duration
from runner.store.identity import Identity
from runner.store.store import Store

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# Experiments

Made by `make readme` from the published results. [Concepts](concepts.md) explains the verdicts; the
last column is the processor time of one seed on one core.
[What was not run](../outputs/published/not_run.md) is listed with its cost.

| experiment | paper | reproduces | verdicts | one seed |
|---|---|---|---|---|
"""
KEPT = (
    *("exact match", "reproduced", "not reproduced", "inconclusive"),
    *("confirmed", "refuted", "minor error", "calibrated"),
)


def row(name: str) -> str:
    """One line of the table."""
    experiment = preview(name)
    path = ROOT / "outputs" / "published" / name / "manifest.json"
    paper = experiment.paper if experiment.paper != "scalar spectrum" else "Scalar spectrum"
    head = f"| `{name}` | {paper} | {experiment.reproduces or experiment.title} |"
    record = read_manifest(path.parent)
    if record is None:
        return (
            f"{head} not run yet | {duration(sum(cell.seconds for cell in experiment.cells()))} |"
        )
    extensions = Counter(record["extensions"])
    kinds = {
        "numbers": Counter(record["scorecard"]),
        "statements": Counter(record["claims"]) - extensions,
        "extensions": extensions,
    }
    parts = []
    for kind, counts in kinds.items():
        listed = [f"{counts[verdict]} {verdict}" for verdict in KEPT if counts[verdict]]
        if listed:
            parts.append(f"{kind}: {', '.join(listed)}")
    held = "; ".join(parts)
    key = Identity.of(name, experiment).key
    cells = Store(ROOT / "outputs", name).all()
    stored = [cell for cell in cells if cell.meta["settings_key"] == key]
    costs, measured = Costs(stored), [cell.meta["params"] for cell in stored]
    cost = sum(costs(cell)[0] for cell in experiment.cells() if dict(cell.params) in measured)
    left = sum(cell.seconds for cell in experiment.cells() if dict(cell.params) not in measured)
    more = f"; {duration(left)} more for what is not run" if left else ""
    return (
        f"{head} [{held or 'measured'}](../outputs/published/{name}/report.md) | "
        f"{duration(cost)}{more} |"
    )


def main() -> None:
    """Write the page."""
    table = "\n".join(row(name) for name in experiment_names())
    (ROOT / "docs" / "experiments.md").write_text(HEAD + table + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
