"""The printed numbers of an experiment compared again with its published cells, next to its
published scorecard: `python -m tests.experiments.published_numbers NAME…` prints each
difference."""

import json
import math
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from runner.report.answers.judged import Judged
from runner.report.collect import collect
from runner.run.config.jobs import build_job, protocol
from runner.stats.scorecard import scorecard
from tests import PUBLISHED
from tests.experiments.verdicts import rows


def material_of(name, outputs):
    """What the report of an experiment is made from, its published cells."""
    job = build_job([f"experiment={name}", f"outputs={outputs}"])
    return Judged(collect([job], protocol)).material


def scores(name, outputs):
    """Rows of the scorecard, from published cells, as texts and numbers."""
    material = material_of(name, outputs)
    if material.printed is None:
        return []
    measured = material.judged.analysis().measured()
    lost = "; ".join(material.scope.lost)
    return scorecard(measured, material.printed, material.scope.reason, lost).to_dict("records")


def differences(name, outputs):
    """One line for each field of a number that differs from the published one; the replication is
    of other seeds and left out."""
    made = scores(name, outputs)
    published = rows(PUBLISHED / name / "scorecard.csv")
    if len(made) != len(published):
        yield f"{len(published)} rows -> {len(made)}"
    for before, now in zip(published, made, strict=False):
        about = " ".join(list(before.values())[:8])
        for column in before.keys() & now.keys() - {"replication"}:
            if not alike(before[column], now[column]):
                yield f"{about}: {column}: {before[column]!r} -> {now[column]!r}"


def alike(before, now):
    """Whether a value is the published text, or to its digits the published number."""
    if isinstance(now, tuple):  # values by seed
        return json.loads(before) == list(map(list, now))
    if not isinstance(now, float):
        return before == str(now)
    old = float(before or "nan")
    return math.isclose(old, now, rel_tol=1e-6) or (math.isnan(old) and math.isnan(now))


if __name__ == "__main__":
    for experiment in sys.argv[1:]:
        with TemporaryDirectory() as folder:
            found = list(differences(experiment, Path(folder)))
        print(experiment, *found or ["equal"], sep="\n  ")
