"""Write docs/experiments.md, the table of experiments, from the published reports: `make readme`.

One row an experiment: what it reproduces, what held of the printed numbers and statements, and what
a seed costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.report.output.manifest import read_manifest
from runner.run.config.experiment import preview
from runner.run.config.files import experiment_names
from runner.store.costs import Costs, duration
from runner.store.identity import Identity
from runner.store.store import Store

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# Experiments

Made by `make readme` from the published results. [Concepts](concepts.md) explains the verdicts.
Numbers: exact match / reproduced / not reproduced / inconclusive; statements and extensions:
confirmed / refuted / minor error / inconclusive. The last column is the processor time of one seed
on one core. [What was not run](../outputs/published/not_run.md) is listed with its cost.

| experiment, report | paper | reproduces | numbers | statements | extensions | one seed |
|---|---|---|---|---|---|---|
"""
OF_NUMBERS = ("exact match", "reproduced", "not reproduced", "inconclusive")
OF_STATEMENTS = ("confirmed", "refuted", "minor error", "inconclusive")


def shown(counts: Mapping[str, int], verdicts: Sequence[str]) -> str:
    """'6/39/8/11', and after it how many are calibrated; "" without any."""
    numbers = [counts.get(verdict, 0) for verdict in verdicts]
    parts = []
    if any(numbers):
        parts.append("/".join(map(str, numbers)))
    if counts.get("calibrated"):
        parts.append(f"{counts['calibrated']} calibrated")
    return ", ".join(parts)


def row(name: str) -> str:
    """One line of the table."""
    experiment = preview(name)
    path = ROOT / "outputs" / "published" / name / "manifest.json"
    paper = experiment.paper if experiment.paper != "scalar spectrum" else "Scalar spectrum"
    about = f"{paper} | {experiment.reproduces or experiment.title}"
    record = read_manifest(path.parent)
    if record is None:
        predicted = sum(cell.seconds for cell in experiment.cells())
        return f"| `{name}` | {about} | not run yet | | | {duration(predicted)} |"
    extensions = Counter(record["extensions"])
    cells_of_row = [
        f"[`{name}`](../outputs/published/{name}/report.md)",
        about,
        shown(Counter(record["scorecard"]), OF_NUMBERS),
        shown(Counter(record["claims"]) - extensions, OF_STATEMENTS),
        shown(extensions, OF_STATEMENTS),
    ]
    key = Identity.of(name, experiment).key
    cells = Store(ROOT / "outputs", name).all()
    stored = [cell for cell in cells if cell.meta["settings_key"] == key]
    costs, measured = Costs(stored), [cell.meta["params"] for cell in stored]
    cost = sum(costs(cell)[0] for cell in experiment.cells() if dict(cell.params) in measured)
    left = sum(cell.seconds for cell in experiment.cells() if dict(cell.params) not in measured)
    more = f"; {duration(left)} more for what is not run" if left else ""
    return f"| {' | '.join(cells_of_row)} | {duration(cost)}{more} |"


def main() -> None:
    """Write the page."""
    table = "\n".join(row(name) for name in experiment_names())
    (ROOT / "docs" / "experiments.md").write_text(HEAD + table + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
