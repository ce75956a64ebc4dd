"""How sharp the audit is, in words: the samples of injected errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.paper_audit import held_out, slips
from experiments.paper_audit.fold import code, folded

Row = dict[str, Any]
KINDS = {
    "sign": "wrong sign",
    "term": "dropped term",
    "factor": "dropped factor",
    "power": "dropped power",
    "index": "wrong index or order of differentiation",
    "transpose": "lost transpose",
    "hypothesis": "dropped hypothesis",
}


def section(injected: Mapping[str, list[Row]]) -> list[str]:
    """Lines on the sample that counts, run once, then on the first held-out sample and on the refined kinds.

    injected: rows of the samples `slips`, `held_out` and `sharpness`, of the present run; the share that counts is the
    first run's.
    """
    lines = ["", "## How sharp the audit is", ""]
    lines += _slips(slips.first_run())
    own = injected.get("slips", [])
    if own and _caught(own) != _caught(slips.first_run()):
        lines += [f"The same sample from the checks as they are: {_share(_errors(own))}.", ""]
    return lines + folded("Earlier samples, of other kinds", _earlier(injected))


def _earlier(injected: Mapping[str, list[Row]]) -> list[str]:
    """The first held-out sample, that drawn anew, and the kinds that the checks were refined on."""
    first = held_out.first_run()
    same = sum(str(row["why_not"]).startswith(held_out.SAME) for row in first)
    lines = [
        f"An earlier sample, of other kinds, had {_share(first)} at its first run; {same} of the "
        f"{sum(not row['caught'] for row in first)} that slipped through leave the value as it is.",
    ]
    if own := injected.get("held_out"):
        lines += [f"Drawn anew from the checks as they are, without such changes: {_share(_errors(own))}."]
    lines += ["", *_listed("Not caught at that first run", [row for row in first if not row["caught"]])]
    if own := injected.get("sharpness"):
        counted = _errors(own)
        lines += [
            f"Of the kinds on which the checks were refined {_share(counted)} are caught: no measure. Bounds that are "
            "far from attained are not changed, since a wrong constant in them may still be true.",
            "",
            *_listed("Not caught of these", [row for row in counted if not row["caught"]]),
        ]
    return lines


def _slips(rows: list[Row]) -> list[str]:
    """The second sample: share with its interval, by kind, what was not caught, what was proved to be no error."""
    counted, same = _errors(rows), [row for row in rows if row["same"]]
    raised = [row for row in counted if ": " in str(row["by"])]
    evaluated = [row for row in counted if row not in raised]
    missed = [row for row in counted if not row["caught"]]
    leave = sum(str(row["why_not"]).startswith(held_out.SAME) for row in missed)
    lines = [
        f"**{_share(counted)} injected errors are caught**, at the first and only run of a sample whose kinds were "
        "written from the slips that the papers show, before the checks were read, and committed with seed and size "
        f"before it was run. {len(raised)} of them cannot be evaluated at all (shapes that do not fit); of the others "
        f"{_share(evaluated)} are caught. Of the {len(missed)} that slipped through, {leave} leave the value as it is, "
        f"which was not proved and is counted against the audit, and {len(missed) - leave} change a comparison and no "
        f"formula. {len(same)} more drawn is no error, proved to leave the value before any check is asked; it is not "
        f"counted, and {sum(bool(row['caught']) for row in same)} of these was caught.",
    ]
    kinds = ["| injected | errors | caught |", "|---|---|---|"]
    for kind, words in slips.WORDS.items():
        own = [row for row in counted if row["kind"] == kind]
        kinds += [f"| {words} | {len(own)} | {sum(bool(r['caught']) for r in own)} |"] if own else []
    proofs = [f"- `{row['place']}`: {code(row['change'])}; {row['same']}" for row in same]
    lines += ["", *folded("By kind", kinds), *_listed("Not caught", missed)]
    return [*lines, *folded(f"No errors, and why ({len(proofs)})", proofs)]


def _caught(rows: Sequence[Row]) -> list[bool]:
    return [str(row["caught"]) == "True" for row in _errors(rows)]


def _errors(rows: Sequence[Row]) -> list[Row]:
    """Rows that are errors."""
    return [row for row in rows if not row.get("same")]


def _share(rows: Sequence[Row]) -> str:
    """'205 of 225 (91.1 %, 95 % interval 86.6 to 94.5)', the interval of Clopper and Pearson."""
    from scipy.stats import binomtest

    caught = sum(bool(row["caught"]) for row in rows)
    low, high = binomtest(caught, len(rows)).proportion_ci(0.95, method="exact")
    share = f"{100 * caught / len(rows):.1f} %, 95 % interval {100 * low:.1f} to {100 * high:.1f}"
    return f"{caught} of {len(rows)} ({share})"


def _listed(summary: str, rows: Sequence[Row]) -> list[str]:
    why = [f" ({row['why_not']})" if row.get("why_not") else "" for row in rows]
    lines = [f"- `{row['place']}`: {code(row['change'])}{text}" for row, text in zip(rows, why, strict=True)]
    return folded(f"{summary} ({len(lines)})", lines)
