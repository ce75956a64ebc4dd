"""python -m experiments.paper_audit.sharpness: inject the errors of all samples and print how many are noticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from experiments.paper_audit.sharpness import bounds, slips, trials

REFINED, HELD_OUT, HELD_OUT_SEED = 50, 45, 20261122
"""Errors per paper of the kinds that the checks were refined on, and of the first held-out sample with its seed."""


def main() -> int:
    """Three samples as the checks are now, and the constants of bounds; 1 where a constant is not noticed."""
    samples: dict[str, Callable[[], Sequence[dict[str, Any]]]] = {
        "kinds of the papers' own errors": lambda: trials.slip_rows(slips.COUNT, slips.SEED),
        "other kinds, held out": lambda: trials.held_out_rows(HELD_OUT, HELD_OUT_SEED),
        "kinds that the checks were refined on": lambda: trials.rows(REFINED),
    }
    for name, rows in samples.items():
        errors = [row for row in rows() if not row["same"]]
        missed = [f"{row['place']}: {row['change']}" for row in errors if not row["caught"]]
        print(f"{name}: {len(errors) - len(missed)} of {len(errors)} noticed", *missed, sep="\n  ")
    missed = [f"{error.clause}: {error.wrong}" for error in bounds.WRONG if not bounds.noticed(error)]
    print(f"constants of bounds: {len(bounds.WRONG) - len(missed)} of {len(bounds.WRONG)} noticed", *missed, sep="\n  ")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
