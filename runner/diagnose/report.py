"""From the stored parts to tables, figures and the page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.diagnose.figures import figures
from runner.diagnose.measure import Outcome, tables_of
from runner.diagnose.page import page
from runner.report.saving import save
from runner.store import tables as csv

if TYPE_CHECKING:
    import pandas as pd


def write(name: str, folder: Path, outcome: Outcome) -> list[str]:
    """Write <folder>/tables/*.csv, figures/*.png and index.html; returns lines for the console."""
    tables = dict(tables_of(outcome.cells))
    for part in ("tables", "figures"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for old in (folder / part).glob("*.*"):
            old.unlink()
    for key, table in tables.items():
        csv.write(table, folder / "tables" / f"{key}.csv")
    meta = outcome.cells[-1].meta if outcome.cells else {}
    software = meta.get("software", {})
    stamp = {"experiment": f"diagnose {name}", "commit": software.get("git_commit", "")}
    drawn = []
    for key, draw in figures(tables):
        try:
            drawn.append(save(draw(), folder / "figures" / key, {**stamp, "figure": key}))
        except (ValueError, TypeError, KeyError, RuntimeError) as error:  # tables and page must not be lost with it
            outcome.failed.append(f"figure {key}: {type(error).__name__}: {error}")
    files = [f"tables/{key}.csv" for key in tables] + [f"figures/{p.name}" for p in drawn]
    origin = {
        **meta.get("settings", {}),
        **{k: meta[k] for k in ("seed", "threads", "device") if k in meta},
        **software,
    }
    text = page(name, _lead(tables), tables, drawn, files, outcome.failed, origin)
    csv.write_bytes(folder / "index.html", text.encode())
    lines = [*_summary(tables), f"  {len(tables)} tables, {len(drawn)} figures, page {folder / 'index.html'}"]
    return lines + [f"  failed: {line}" for line in outcome.failed]


def _lead(tables: dict[str, pd.DataFrame]) -> str:
    cost = tables.get("cost")
    if cost is None:
        return ""
    return (
        f"{cost['step'].nunique()} snapshots; foretold {cost['foretold_gradients'].sum():.4g} gradients, taken "
        f"{cost['gradients'].sum():.4g} ({cost['seconds'].sum():.3g} s)."
    )


def _summary(tables: dict[str, pd.DataFrame]) -> list[str]:
    """The certificates and scalars of the last step, and what the whole cost."""
    lines = []
    if "certificate" in tables:
        last = tables["certificate"]
        lines += [_certificate(row) for row in last[last["step"] == last["step"].max()].to_dict("records")]
    if "scalars" in tables:
        last = tables["scalars"]
        last = last[last["step"] == last["step"].max()]
        for row in last.to_dict("records"):
            lines.append(f"  {row['quantity']}: {_value(row)}")
    cost = tables.get("cost")
    if cost is not None:
        foretold, taken = cost["foretold_gradients"].sum(), cost["gradients"].sum()
        lines.append(f"  cost: foretold {foretold:.4g} gradients, taken {taken:.4g}")
    return lines


def _certificate(row: dict[Any, Any]) -> str:
    if not row["ok"]:
        return f"  {row['what']}: NOT certified: {row['status']}"
    note = "" if row["status"] == "ok" else f"; {row['status']}"
    return f"  {row['what']}: certified, products within {row['error']:.1e} of differences of gradients{note}"


def _value(row: dict[Any, Any]) -> str:
    if row["value"] != row["value"]:
        return str(row["status"])
    error = f" ± {row['error']:.2g}" if row["error"] and row["error"] == row["error"] else ""
    return f"{row['value']:.5g}{error}" + (f" ({row['method']})" if row["method"] else "")
