"""Tables, figures, report.md and page of a diagnosis, from its stored cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from runner.contract import Analysis
from runner.report.collect import Collection, Missing, Place, manifest
from runner.report.figures import PlotStyles, heatmap, legend, letter, log_axis, new_figure
from runner.report.findings import Failures, Material, Subject
from runner.report.formatting import markdown_table, shown
from runner.report.write import write_report
from runner.store.job import Job
from runner.store.store import Stored, merge

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FOLDER = "tables"
"""Where the tables are, below the folder of the report."""
RENAMED = {
    "foretold_gradients": "predicted_gradients",
    "foretold_bytes": "predicted_bytes",
    "how": "method",
}
"""Columns of `cost` in cells stored before version 0.2 -> their names now."""
TEXT = {
    "v",
    "w",
    "node",
    "parents",
    "note",
    "status",
    "method",
    "quantity",
    "part",
    "group",
    "what",
}
"""Columns of text, also where they look like numbers."""
COLUMNS = 6
"""Steps that a table of report.md shows; of more, the first, the last and some between."""
ROWS = 25
"""Rows of a matrix that report.md shows; the rest is in the CSV files."""

MEANINGS = {
    "discarded share": "Φ = 1 − Σ_v ‖H_vv‖² / ‖H‖² of the Hessian between groups of parameters (one group for each "
    "module): the share of its squared norm that block-diagonal methods such as K-FAC discard",
    "lambda_1, lambda_n": "largest and smallest eigenvalue of the Hessian in the parameters",
    "lambda_sup": "Wolkowicz–Styan upper bound of lambda_1, from the traces of H and of H²",
    "gradient noise scale": "tr Σ / |G|² in examples: the batch size at which gradient and noise are equal",
}
LEADS = {
    "certificate": "Hessian products compared with finite differences of gradients in float64: between layers for each "
    "example of the first batch, over the parameters for all batches. A kink (a ReLU at 0) that no step avoids is "
    "named with its examples, which are then left out.",
    "layers": "R = ‖H[v,w]‖_F of the mean over the examples of the first batch, C = R(v,w)/√(R(v,v) R(w,w)), "
    "D = ‖H‖_F²/‖H‖₂², gap = ‖T‖_F/‖GN‖_F (tensor part over Gauss–Newton part). Exact values have error 0.",
    "groups": "The same between groups of parameters. share: of ‖H‖²; block-diagonal methods keep the rows with v = w "
    "only. Where values are estimated, D is given for these rows. The group `module` (or `module()`) holds the "
    "parameters of the module itself.",
    "eigenvalues": "Eigenvalues of the Hessian in the parameters; residual = ‖Hu − λu‖.",
    "cost": "In gradients of all batches; the part `network` includes the checks and the predictions. Parts of more "
    "than a second were predicted within a factor of three; below one second, set-up cost dominates.",
}
LABELS = {"lambda_1": "λ₁", "lambda_sup": "λ_sup, upper bound", "lambda_n": "smallest eigenvalue"}
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
PAIRS = {"layers": ("R", "C", "D", "gap"), "groups": ("R", "C", "share")}
"""Table -> its columns that a heat map shows."""
TITLES = {
    "R": "R = ‖H[v,w]‖",
    "C": "C, coupling",
    "D": "D, stable rank",
    "gap": "GN gap = ‖T‖ / ‖GN‖",
    "share": "share of ‖H‖²; the diagonal is kept",
}


def tables_of(cells: Sequence[Stored]) -> dict[str, pd.DataFrame]:
    """Tables of all cells, one below the other, by name; of one name whenever the cells were stored."""
    import pandas as pd

    frames: dict[str, list[pd.DataFrame]] = {}
    for cell in cells:
        for name, table in merge([cell]).items():
            extra = ["seed"] if name == "cost" else ["seed", "part"]
            renamed = table.rename(columns=RENAMED).drop(columns=extra, errors="ignore")
            frames.setdefault(name, []).append(renamed)
    tables = {
        name: pd.concat([f for f in of if len(f)] or of[:1], ignore_index=True)
        for name, of in frames.items()
    }
    for table in tables.values():
        for column in TEXT.intersection(table.columns):  # a layer may be called "0"
            table[column] = (
                table[column].astype(object).where(table[column].notna(), "").astype(str)
            )
    return tables


def write(
    job: Job, cells: Sequence[Stored], missing: Sequence[Missing], command: str
) -> tuple[list[str], list[str]]:
    """Write the report of some cells. job: that of the last snapshot. Returns lines for the console, and failures."""
    folder = job.store.root
    collection = Collection(
        job,
        Place(folder, job.experiment, (), job.experiment),
        tuple(cells),
        (job.seed,),
        tuple(missing),
    )
    tables = {f"{FOLDER}/{name}": table for name, table in tables_of(cells).items()}
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    record = {
        **manifest(collection),
        "title": f"Diagnosis of {job.name}",
        "command": command,
        "fill_commands": [command],
    }
    subject = Subject(job.experiment, tables)
    material = Material(scope=collection.scope, shown=subject, judged=subject)
    made = write_report(folder, record, material)
    analysis = DiagnosisAnalysis(job.experiment, tables)
    drawn = len(made["captions"])
    pages = f"  {len(tables)} tables, {drawn} figure{'' if drawn == 1 else 's'}, page {folder / 'index.html'}"
    return [*analysis.console(), pages], Failures(made["report_failures"]).lines()


class DiagnosisAnalysis(Analysis):
    """Figures and report.md of a diagnosis."""

    bars = "standard error, residual or half of the 95 % interval, as the method says"

    @cached_property
    def named(self) -> dict[str, pd.DataFrame]:
        """The tables by their names in the cells."""
        return {
            name.removeprefix(f"{FOLDER}/"): table
            for name, table in self.tables.items()
            if len(table)
        }

    @cached_property
    def last(self) -> dict[str, pd.DataFrame]:
        """The tables at the last step that each has."""
        return {
            name: table[table["step"] == table["step"].max()] for name, table in self.named.items()
        }

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
        """‖H_vw‖ between groups of parameters, at the last step; block-diagonal methods discard all blocks off the
        diagonal."""
        return self._matrices("groups", 1, 3)

    def _matrices(self, name: str, rows: int, cols: int) -> Figure:
        """Heat maps of the columns of a table of pairs."""
        import numpy as np

        table = self.last[name]
        names = list(dict.fromkeys([*table["v"], *table["w"]]))
        place = {node: i for i, node in enumerate(names)}
        side = 2.4 + 0.18 * len(names)
        figure, axes = new_figure(rows, cols, width=cols * side, height=rows * side)
        ticks = [node if len(node) <= 24 else "…" + node[-23:] for node in names]
        for ax, column in zip(axes.ravel(), PAIRS[name], strict=True):
            matrix = np.full((len(names), len(names)), np.nan)
            for v, w, value in zip(table["v"], table["w"], table[column], strict=True):
                matrix[place[v], place[w]] = matrix[place[w], place[v]] = value
            log = column in ("R", "share") and bool((table[column] > 0).any())
            heatmap(ax, matrix, column, log=log)
            ax.set_xticks(range(len(names)), ticks, rotation=90)
            ax.set_yticks(range(len(names)), ticks)
            ax.grid(False)
        letter(axes, [TITLES[column] for column in PAIRS[name]])
        return figure

    def spectrum(self) -> Figure:
        """Density of the eigenvalues of the Hessian in the parameters at the last step, its extreme eigenvalues, and
        the upper bound λ_sup of the largest. Band: 95 % interval of the density."""
        figure, axes = new_figure(1, 1, width=6.0, height=3.2)
        ax = axes[0, 0]
        if "density" in self.last:
            density = self.last["density"]
            ax.plot(
                density["eigenvalue"],
                density["density"],
                color=STYLES.colour("density"),
                label="density",
            )
            largest = float(density["density"].max())
            bottom = max(1e-8, largest * 1e-7)
            low, high = (density[band].clip(lower=bottom) for band in ("low", "high"))
            ax.fill_between(
                density["eigenvalue"],
                low,
                high,
                color=STYLES.colour("density"),
                alpha=0.25,
                linewidth=0,
            )
            if largest > 0:
                log_axis(ax, "y")
                ax.set_ylim(bottom, 3 * float(high.max()))
        for i, value in enumerate(
            self.last["eigenvalues"]["value"] if "eigenvalues" in self.last else ()
        ):
            label = "extreme eigenvalues" if i == 0 else None
            ax.axvline(value, color="0.3", linewidth=0.8, linestyle=":", label=label)
        scalars: Any = (
            self.last["scalars"].set_index("quantity")["value"] if "scalars" in self.last else {}
        )
        if "lambda_sup" in scalars:
            ax.axvline(scalars["lambda_sup"], label="λ_sup", color=STYLES.colour("lambda_sup"))
        ax.set_xlabel("eigenvalue of the Hessian in the parameters")
        ax.set_ylabel("density")
        legend(ax)
        return figure

    def curves(self) -> Figure:
        """Measured quantities over the steps of the training."""
        scalars = self.named["scalars"]
        measured = set(scalars["quantity"])
        shared = [[name for name in names if name in measured] for names in CURVES]
        shared = [names for names in shared if names]
        figure, axes = new_figure((len(shared) + 2) // 3, min(3, len(shared)))
        for ax, names in zip(axes.ravel(), shared, strict=False):
            for name in names:
                rows, style = (
                    scalars[scalars["quantity"] == name].sort_values("step"),
                    STYLES.style(name),
                )
                ax.plot(rows["step"], rows["value"], label=LABELS.get(name, name), **style)
                low, high = rows["value"] - rows["error"], rows["value"] + rows["error"]
                ax.fill_between(rows["step"], low, high, color=style["color"], alpha=0.2)
            ax.set_xlabel("step")
            if len(names) > 1:
                legend(ax)
        for ax in axes.ravel()[len(shared) :]:
            ax.set_visible(False)
        letter(
            axes.ravel()[: len(shared)],
            [" and ".join(LABELS.get(name, name) for name in names) for names in shared],
        )
        return figure

    def documents(self) -> dict[str, str]:
        """report.md."""
        return {"report.md": "\n".join(part for part in self._sections() if part)}

    def _sections(self) -> Iterator[str]:
        cost = self.named["cost"]
        yield "# Diagnosis\n"
        yield (
            f"{_count(cost['step'].nunique(), 'snapshot')}; predicted cost {cost['predicted_gradients'].sum():.4g} "
            f"gradients, measured {cost['gradients'].sum():.4g} ({cost['seconds'].sum():.3g} s).\n"
        )
        yield self._numbers()
        yield self._table("Numerical check", "certificate", self.named)
        yield self._table("Between layers", "layers", self.last)
        yield self._table("Between groups of parameters", "groups", self.last)
        yield self._table("Eigenvalues", "eigenvalues", self.last)
        yield self._table("Nodes", "nodes", self.last)
        yield self._table("Cost", "cost", self.named)
        notes = dict.fromkeys(self.named["notes"]["note"]) if "notes" in self.named else {}
        yield "## Notes\n\n" + "\n".join(f"- {note}" for note in notes) + "\n" if notes else ""

    def _numbers(self) -> str:
        """Scalars with a column for each step."""
        if "scalars" not in self.named:
            return ""
        scalars = self.named["scalars"]
        steps = sorted(scalars["step"].unique())
        some = (
            [steps[round(i * (len(steps) - 1) / (COLUMNS - 1))] for i in range(COLUMNS)]
            if len(steps) > COLUMNS
            else steps
        )
        rows = []
        for quantity, found in scalars.groupby("quantity", sort=False):
            by_step = {row["step"]: row for row in found.to_dict("records")}
            last = by_step[max(by_step)]
            cells = [_value(by_step[step]) if step in by_step else "" for step in some]
            rows.append(
                [quantity, *cells, last["method"], "" if last["status"] == "ok" else last["status"]]
            )
        table = markdown_table(
            "Numbers", ["quantity", *(f"step {step}" for step in some), "method", "remark"], rows
        )
        there = set(scalars["quantity"])
        meanings = "\n".join(
            f"- {name}: {text}." for name, text in MEANINGS.items() if name.split(", ")[0] in there
        )
        more = (
            f"{len(steps) - len(some)} more steps are in {FOLDER}/scalars.csv.\n\n"
            if len(some) < len(steps)
            else ""
        )
        return f"{table}\n{more}{meanings}\n"

    def _table(self, heading: str, name: str, tables: Mapping[str, pd.DataFrame]) -> str:
        if name not in tables:
            return ""
        table = tables[name]
        steps = self.named[name]["step"].nunique()
        if tables is self.last and steps > 1:
            heading += f", step {table['step'].iloc[0]}"
        if steps == 1 or tables is self.last:
            table = table.drop(columns="step")
        rows = [[_cell(value) for value in row] for row in table.head(ROWS).itertuples(index=False)]
        found = markdown_table(heading, [str(c).replace("_", " ") for c in table.columns], rows)
        lead = f"{LEADS[name]}\n\n" if name in LEADS else ""
        more = (
            f"\n{len(table) - ROWS} more rows are in {FOLDER}/{name}.csv.\n"
            if len(table) > ROWS
            else ""
        )
        return found.replace("\n\n", f"\n\n{lead}", 1) + more

    def console(self) -> list[str]:
        """Numerical checks and scalars of the last step, and the cost."""
        if "cost" not in self.named:  # no part could be measured: the reasons follow
            return []
        cost = self.named["cost"]
        steps = sorted(cost["step"].unique())
        lines = (
            [f"  at step {steps[-1]}; the page has all {len(steps)} steps"]
            if len(steps) > 1
            else []
        )
        for row in (
            self.last["certificate"].to_dict("records") if "certificate" in self.last else ()
        ):
            note = "" if row["status"] == "ok" else f"; {row['status']}"
            verified = (
                f"certified, products within {row['error']:.1e} of differences of gradients{note}"
            )
            lines.append(
                f"  {row['what']}: {verified if row['ok'] else 'NOT certified: ' + row['status']}"
            )
        for row in self.last["scalars"].to_dict("records") if "scalars" in self.last else ():
            method = f" ({row['method']})" if row["method"] and row["value"] == row["value"] else ""
            lines.append(f"  {row['quantity']}: {_value(row) or row['status']}{method}")
        predicted, measured = cost["predicted_gradients"].sum(), cost["gradients"].sum()
        return [*lines, f"  cost: predicted {predicted:.4g} gradients, measured {measured:.4g}"]


def _value(row: Mapping[Any, Any]) -> str:
    """A scalar with its error; '' for NaN."""
    error = (
        f" ± {float(format(row['error'], '.2g')):g}"
        if row["error"] and row["error"] == row["error"]
        else ""
    )
    return f"{shown(row['value'], 4)}{error}" if row["value"] == row["value"] else ""


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "–" if value != value else f"{value:.4g}"
    return str(value)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
