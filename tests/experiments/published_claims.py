"""The statements of an experiment decided again from its published cells, next to its published
verdicts: `python -m tests.experiments.published_claims NAME…` prints each difference."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from runner.report.answers.findings import within_scope
from runner.report.answers.judged import Judged
from runner.report.collect import collect
from runner.run.config.jobs import build_job, protocol
from tests import PUBLISHED
from tests.experiments.verdicts import rows

TEXTS = ("verdict", "threshold", "authors", "chosen", "independent", "extension", "alternative")
NUMBERS = ("statistic", "seeds_needed", "authors_value")
PARTS = ("variants", "other_seeds")


def decided(name, outputs):
    """name -> claim, from published cells."""
    job = build_job([f"experiment={name}", f"outputs={outputs}"])
    material = Judged(collect([job], protocol)).material
    analysis = material.judged.analysis()
    texts = {s: a.text for a in analysis.alternatives for s in a.statements}
    claims = [replace(c, alternative=texts.get(c.name, "")) for c in analysis.claims()]
    return {claim.name: within_scope(claim, material.scope) for claim in claims}


def said(detail):
    """What a detail says, its parts in any order."""
    return sorted(phrase for text in detail.split("; ") for phrase in text.split(", "))


def differences(name, outputs, details=False):
    """One line for each field of a statement that differs from the published one.

    details: compare their texts, too."""
    made = decided(name, outputs)
    published = {row["name"]: row for row in rows(PUBLISHED / name / "claims.csv")}
    if set(made) != set(published):
        yield f"statements: {sorted(set(made) ^ set(published))}"
    for key in published.keys() & made.keys():
        before, now = published[key], vars(made[key])
        for column in TEXTS:
            if before[column] != str(now[column]):
                yield f"{key}: {column}: {before[column]!r} -> {now[column]!r}"
        for column in NUMBERS:
            old = float(before[column] or "nan")
            if not math.isclose(old, now[column], rel_tol=1e-6) and not (
                math.isnan(old) and math.isnan(now[column])
            ):
                yield f"{key}: {column}: {old:g} -> {now[column]:g}"
        for column in PARTS:
            old = json.loads(before[column] or "{}")
            if old != now[column]:
                yield f"{key}: {column}: {old} -> {now[column]}"
        if details and said(before["detail"]) != said(now["detail"]):
            yield f"{key}: detail: {before['detail']!r} -> {now['detail']!r}"


if __name__ == "__main__":
    for experiment in sys.argv[1:]:
        with TemporaryDirectory() as folder:
            found = list(differences(experiment, Path(folder), details=True))
        print(experiment, *found or ["equal"], sep="\n  ")
