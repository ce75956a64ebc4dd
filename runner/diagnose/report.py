"""Tables, figures, report.md and page of a diagnosis, from its stored cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from runner.contract import Analysis
from runner.report.collect import Collection, Missing, manifest
from runner.report.figures import PlotStyles, heatmap, legend, letter, log_axis, new_figure
from runner.report.findings import Failures, Material, Subject
from runner.report.formatting import markdown_table
from runner.report.place import Place
from runner.report.rows import shown
from runner.report.write import write_report
from runner.store.job import Job
from runner.store.store import Stored, merge

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOLDER = "tables"
"""Where the tables are, below the folder of the report."""
TEXT = {"v", "w", "node", "note", "status", "method", "quantity", "part", "group", "what"}
"""Columns of text, also where they look like numbers."""
COLUMNS = 6
"""Steps that a table of report.md shows; of more, the first, the last and some between."""

MEANINGS = {
    "discarded share": "Φ = 1 − Σ_v ‖H_vv‖² / ‖H‖² of the Hessian between groups of parameters "
    "(one group for each module): the share of its squared norm that block-diagonal methods such "
    "as K-FAC discard",
    "lambda_1, lambda_n": "largest and smallest eigenvalue of the Hessian in the parameters",
    "lambda_sup": "Wolkowicz–Styan upper bound of lambda_1, from the traces of H and of H²",
    "gradient noise scale": "tr Σ / |G|² in examples: the batch size at which gradient and noise "
    "are equal",
}
LEADS = {
    "certificate": "Hessian products compared with finite differences of gradients in float64, "
    "over all batches. A kink (a ReLU at 0) that no step avoids is named.",
    "layers": "R = ‖H[v,w]‖_F of the mean over all examples, C = R(v,w)/√(R(v,v) R(w,w)), "
    "D = ‖H‖_F²/‖H‖₂², gap = ‖T‖_F/‖GN‖_F (tensor part over Gauss–Newton part). Exact values "
    "have error 0.",
    "groups": "The same between groups of parameters. share: of ‖H‖²; block-diagonal methods keep "
    "the rows with v = w only. The group `module` (or `module()`) holds the parameters of the "
    "module itself.",
    "eigenvalues": "Eigenvalues of the Hessian in the parameters; residual = ‖Hu − λu‖.",
    "batches": "How far the numbers of these data lie from those of other batches: standard error "
    "over batches (jackknife) and 95 % interval, next to the error of the estimate itself.",
    "cost": "In gradients of all batches: the number of products times the time of one. The part "
    "`network` includes the checks and the timed products. Parts of more than a second were "
    "predicted within a factor of five.",
}
HEADINGS = {
    "batches": "Errors over batches",
    "layers": "Between layers",
    "groups": "Between groups of parameters",
    "eigenvalues": "Eigenvalues",
    "nodes": "Nodes",
}
LABELS = {"lambda_1": "λ₁", "lambda_sup": "λ_sup, upper bound"}
STYLES = PlotStyles(("density", "lambda_sup", "lambda_1", "lambda_n"))
CURVES = (
    ("loss",),
    ("gradient norm",),
    ("lambda_1", "lambda_sup"),
    ("lambda_n",),
    ("trace",),
    ("discarded share",),
    ("gradient noise scale",),
)
"""Quantities that share a panel."""
PANELS = {
    ("lambda_1", "lambda_sup"): "λ₁ and λ_sup, upper bound",
    ("lambda_n",): "smallest eigenvalue",
}
PAIRS = {"layers": ("R", "C", "D", "gap"), "groups": ("R", "C", "share")}
"""Table -> its columns that a heat map shows."""
TITLES = {
    "R": "R = ‖H[v,w]‖",
    "C": "C, coupling",
    "D": "D, stable rank",
    "gap": "GN gap = ‖T‖ / ‖GN‖",
    "share": "share of ‖H‖²; the diagonal is kept",
}


class Source(NamedTuple):
    """The target as the user wrote it, the commit or checksum of its file, and the command."""

    target: str = ""
    provenance: str = ""
    command: str = ""

    def __str__(self) -> str:
        return f"{self.target} ({self.provenance})" if self.provenance else self.target


def tables_of(cells: Sequence[Stored]) -> dict[str, pd.DataFrame]:
    """Tables of all cells, one below the other, by name."""
    frames: dict[str, list[pd.DataFrame]] = {}
    for cell in cells:
        for name, table in merge([cell]).items():
            extra = ["seed"] if name == "cost" else ["seed", "part"]
            frames.setdefault(name, []).append(table.drop(columns=extra, errors="ignore"))
    tables = {}
    for name, parts in frames.items():
        filled = [frame for frame in parts if len(frame)]
        table = pd.concat(filled or parts[:1], ignore_index=True)
        texts = [column for column in table if column in TEXT]  # a layer may be called "0"
        table[texts] = table[texts].astype(object).fillna("").astype(str)
        tables[name] = table
    return tables


def write(
    job: Job, cells: Sequence[Stored], missing: Sequence[Missing]
) -> tuple[list[str], list[str]]:
    """Write the report of some cells. Returns lines for the console, and failures.

    job: that of the last snapshot.
    """
    folder = job.store.root
    experiment = job.experiment
    source: Source = experiment.source  # type: ignore[attr-defined]
    place = Place(folder, experiment, (), experiment)
    collection = Collection(job, place, tuple(cells), (job.seed,), tuple(missing))
    tables = {f"{FOLDER}/{name}": table for name, table in tables_of(cells).items()}
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    record = manifest(collection)
    record |= {
        "title": f"Diagnosis of {source.target}",
        "command": source.command,
        "fill_commands": [source.command],
        "cells": [{**cell, "git_commit": str(source)} for cell in record["cells"]],
    }
    subject = Subject(experiment, tables)
    material = Material(scope=collection.scope, shown=subject, judged=subject)
    made = write_report(folder, record, material)
    analysis = DiagnosisAnalysis(experiment, tables)
    drawn = len(made["captions"])
    figures = f"{drawn} figure{'' if drawn == 1 else 's'}"
    pages = f"  {len(tables)} tables, {figures}, page {folder / 'index.html'}"
    return [*analysis.console(), pages], Failures(made["report_failures"]).lines()


class DiagnosisAnalysis(Analysis):
    """Figures and report.md of a diagnosis."""

    @cached_property
    def named(self) -> dict[str, pd.DataFrame]:
        """The tables by their names in the cells."""
        tables = {name.removeprefix(f"{FOLDER}/"): table for name, table in self.tables.items()}
        return {name: table for name, table in tables.items() if len(table)}

    @cached_property
    def last(self) -> dict[str, pd.DataFrame]:
        """The tables at the last step that each has."""
        return {name: t[t["step"] == t["step"].max()] for name, t in self.named.items()}

    def rows(self, name: str) -> list[dict[Any, Any]]:
        """The rows of a table at its last step; none where there is no such table."""
        if name in self.last:
            return self.last[name].to_dict("records")
        return []

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Every figure that the tables allow."""
        made: dict[str, Callable[[], Figure]] = {}
        if "layers" in self.last and self.last["layers"]["R"].notna().any():
            made["layers"] = self.between_layers
        if "groups" in self.last:
            made["groups"] = self.between_groups
        if "eigenvalues" in self.last or "density" in self.last:
            made["spectrum"] = self.spectrum
        if "scalars" in self.named and self.named["scalars"]["step"].nunique() > 1:
            made["training"] = self.curves
        return made

    def between_layers(self) -> Figure:
        """R, C, D and Gauss–Newton gap of every pair of named outputs, at the last step."""
        return self._matrices("layers", 2, 2)

    def between_groups(self) -> Figure:
        """‖H_vw‖ between groups of parameters, at the last step; block-diagonal methods discard all
        blocks off the diagonal."""
        return self._matrices("groups", 1, 3)

    def _matrices(self, name: str, rows: int, cols: int) -> Figure:
        """Heat maps of the columns of a table of pairs."""
        table = self.last[name]
        names = list(dict.fromkeys([*table["v"], *table["w"]]))
        side = 2.4 + 0.18 * len(names)
        figure, axes = new_figure(rows, cols, width=cols * side, height=rows * side)
        ticks = [node if len(node) <= 24 else "…" + node[-23:] for node in names]
        for ax, column in zip(axes.ravel(), PAIRS[name], strict=True):
            half = table.pivot(index="v", columns="w", values=column).reindex(names, columns=names)
            log = column in ("R", "share") and bool((table[column] > 0).any())
            heatmap(ax, half.combine_first(half.T).to_numpy(), column, log=log)
            ax.set_xticks(range(len(names)), ticks, rotation=90)
            ax.set_yticks(range(len(names)), ticks)
            ax.grid(False)
        letter(axes, [TITLES[column] for column in PAIRS[name]])
        return figure

    def spectrum(self) -> Figure:
        """Density of the eigenvalues of the Hessian in the parameters at the last step, its extreme
        eigenvalues, and the upper bound λ_sup of the largest. Band: 95 % interval of the
        density."""
        figure, axes = new_figure(1, 1, width=6.0, height=3.2)
        ax = axes[0, 0]
        if "density" in self.last:
            _draw_density(ax, self.last["density"])
        for i, row in enumerate(self.rows("eigenvalues")):
            label = "extreme eigenvalues" if i == 0 else None
            ax.axvline(row["value"], color="0.3", linewidth=0.8, linestyle=":", label=label)
        for row in self.rows("scalars"):
            if row["quantity"] == "lambda_sup":
                ax.axvline(row["value"], label="λ_sup", color=STYLES.colour("lambda_sup"))
        ax.set_xlabel("eigenvalue of the Hessian in the parameters")
        ax.set_ylabel("density")
        legend(ax)
        return figure

    def curves(self) -> Figure:
        """Measured quantities over the steps of the training. Bands: standard error, residual or
        half of the 95 % interval, as the method says."""
        scalars = self.named["scalars"]
        curves = {name: rows.sort_values("step") for name, rows in scalars.groupby("quantity")}
        panels = [names for names in CURVES if curves.keys() & set(names)]
        figure, axes = new_figure((len(panels) + 2) // 3, min(3, len(panels)))
        for ax, names in zip(axes.ravel(), panels, strict=False):
            for name in filter(curves.__contains__, names):
                rows = curves[name]
                style = STYLES.style(name)
                ax.plot(rows["step"], rows["value"], label=LABELS.get(name, name), **style)
                low = rows["value"] - rows["error"]
                high = rows["value"] + rows["error"]
                ax.fill_between(rows["step"], low, high, color=style["color"], alpha=0.2)
            ax.set_xlabel("step")
            if len(names) > 1:
                legend(ax)
        for ax in axes.ravel()[len(panels) :]:
            ax.set_visible(False)
        letter(axes.ravel()[: len(panels)], [PANELS.get(names, names[0]) for names in panels])
        return figure

    def documents(self) -> dict[str, str]:
        """report.md."""
        return {"report.md": "\n".join(text for text in self._sections() if text)}

    def _sections(self) -> Iterator[str]:
        source: Source = self.experiment.source  # type: ignore[attr-defined]
        yield f"# Diagnosis of {source.target}\n"
        yield "".join(f"- {line}\n" for line in self._checks())
        yield f"Target: `{source.target}`, {source.provenance or 'of no file'}. {self._cost()}\n"
        yield self._table("Numerical check", "certificate", self.named)
        yield self._numbers()
        for name, heading in HEADINGS.items():
            yield self._table(heading, name, self.last)
        yield self._table("Cost", "cost", self.named)
        if "notes" in self.named:
            notes = dict.fromkeys(self.named["notes"]["note"])
            yield "## Notes\n\n" + "\n".join(f"- {note}" for note in notes) + "\n"

    def _checks(self) -> list[str]:
        """What the numerical checks of the last step say."""
        lines = []
        for row in self.rows("certificate"):
            line = f"{row['what']}: NOT certified"
            if row["ok"] not in (0, 1):
                line = f"{row['what']}: inconclusive"
            elif row["ok"]:
                error = f"{row['error']:.1e}"
                line = (
                    f"{row['what']}: certified, products within {error} of differences of gradients"
                )
            if row["status"] != "ok":
                line += f"; {row['status']}"
            lines.append(line)
        return lines

    def _cost(self) -> str:
        cost = self.named["cost"]
        steps = cost["step"].nunique()
        predicted = cost["predicted_gradients"].sum()
        measured = cost["gradients"].sum()
        return (
            f"{steps} snapshot{'' if steps == 1 else 's'}; cost: predicted {predicted:.4g} "
            f"gradients, measured {measured:.4g} ({cost['seconds'].sum():.3g} s)."
        )

    def _numbers(self) -> str:
        """Scalars with a column for each step."""
        if "scalars" not in self.named:
            return ""
        scalars = self.named["scalars"]
        steps = sorted(scalars["step"].unique())
        count = min(len(steps), COLUMNS)
        some = [steps[round(i * (len(steps) - 1) / max(count - 1, 1))] for i in range(count)]
        texts = scalars.assign(text=[_value(row) for row in scalars.to_dict("records")])
        texts = texts.pivot(index="quantity", columns="step", values="text")[some].fillna("")
        last = scalars.drop_duplicates("quantity", keep="last").set_index("quantity")
        rows = []
        for name in scalars["quantity"].unique():
            remark = last["status"][name]
            if remark == "ok":
                remark = ""
            rows.append([name, *texts.loc[name], last["method"][name], remark])
        heads = ["quantity", *(f"step {step}" for step in some), "method", "remark"]
        text = markdown_table("Numbers", heads, rows) + "\n"
        if count < len(steps):
            text += f"{len(steps) - count} more steps are in {FOLDER}/scalars.csv.\n\n"
        measured = set(scalars["quantity"])
        for name, meaning in MEANINGS.items():
            if name.split(", ")[0] in measured:
                text += f"- {name}: {meaning}.\n"
        return text

    def _table(self, heading: str, name: str, tables: Mapping[str, pd.DataFrame]) -> str:
        if name not in tables:
            return ""
        table = tables[name]
        steps = self.named[name]["step"].nunique()
        if tables is self.last and steps > 1:
            heading += f", step {table['step'].iloc[0]}"
        if steps == 1 or tables is self.last:
            table = table.drop(columns="step")
        heads = [column.replace("_", " ") for column in table.columns]
        text = markdown_table(heading, heads, table.map(_cell).to_numpy().tolist())
        if name in LEADS:
            text = text.replace("\n\n", f"\n\n{LEADS[name]}\n\n", 1)
        return text

    def console(self) -> list[str]:
        """Numerical checks and scalars of the last step, and the cost."""
        if "cost" not in self.named:  # no part could be measured: the reasons follow
            return []
        lines = self._checks()
        steps = sorted(self.named["cost"]["step"].unique())
        if len(steps) > 1:
            lines = [f"at step {steps[-1]}; the page has all {len(steps)} steps", *lines]
        for row in self.rows("scalars"):
            value = _value(row)
            method = ""
            if value and row["method"]:
                method = f" ({row['method']})"
            lines.append(f"{row['quantity']}: {value or row['status']}{method}")
        return [f"  {line}" for line in [*lines, self._cost()]]


def _draw_density(ax: Axes, density: pd.DataFrame) -> None:
    """The density with its band, on a logarithmic axis."""
    colour = STYLES.colour("density")
    grid = density["eigenvalue"]
    ax.plot(grid, density["density"], color=colour, label="density")
    largest = float(density["density"].max())
    bottom = max(1e-8, largest * 1e-7)
    low, high = (density[band].clip(lower=bottom) for band in ("low", "high"))
    ax.fill_between(grid, low, high, color=colour, alpha=0.25, linewidth=0)
    if largest > 0:
        log_axis(ax, "y")
        ax.set_ylim(bottom, 3 * float(high.max()))


def _value(row: Mapping[Any, Any]) -> str:
    """A scalar with its error; '' for NaN."""
    if row["value"] != row["value"]:
        return ""
    text = shown(row["value"], 4)
    if row["error"] and row["error"] == row["error"]:
        text += f" ± {float(format(row['error'], '.2g')):g}"
    return text


def _cell(value: Any) -> str:
    if value != value:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
