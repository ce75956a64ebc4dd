"""`hess-run results`: which tables are stored, with their rows and columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner import results
from runner.run.call import Call
from runner.store.published import where_published


def results_command(call: Call) -> int:
    """Print the tables of stored cells, with rows and columns."""
    print("\n".join(results_lines("".join(call.words), Path(call.keys.get("outputs", "outputs")), call.json)))
    return 0


def columns(experiment: str, outputs: Path) -> dict[str, dict[str, Any]]:
    """Table -> rows and columns (name -> type) of one experiment."""
    loaded = results.load(experiment, outputs=outputs)
    return {
        name: {"rows": len(table), "columns": {str(key): str(kind) for key, kind in table.dtypes.items()}}
        for name, table in loaded.items()
    }


def _rows(outputs: Path) -> dict[str, dict[str, int]]:
    """Experiment -> table -> rows."""
    return {name: found.rows for name, found in results.overview(outputs).items()}


def results_lines(experiment: str, outputs: Path, as_json: bool = False) -> list[str]:
    """Lines of the command. experiment: "" for all of them."""
    found: Mapping[str, Any] = columns(experiment, outputs) if experiment else _rows(outputs)
    if as_json:
        return [json.dumps(found, indent=1)]
    if not found:
        return [f"no cells are stored below {outputs}; {where_published()}"]
    if not experiment:
        lines = [
            f"{name}: {', '.join(f'{t} ({rows})' for t, rows in sorted(of.items()))}" for name, of in found.items()
        ]
        return [*lines, "numbers of rows in brackets; columns: hess-run results EXPERIMENT"]
    lines = [f"{name} ({of['rows']} rows): {', '.join(of['columns'])}" for name, of in found.items()]
    return [*lines, f'in Python: from runner import results; results.load("{experiment}")["{next(iter(found))}"]']
