"""The tables of a diagnosis, as its report shows them, and its lines on the console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from runner.contract import Tables
from runner.contract.records import CERTIFICATE
from runner.diagnose.figures import at_last_step
from runner.report.answers.rows import with_error
from runner.report.output.listing import Listing

if TYPE_CHECKING:
    import pandas as pd

MOST_STEPS = 6
"""Steps that the table of numbers shows; of more, the first, the last and some between."""
MEANINGS = (
    "Φ, the discarded share, is 1 − Σ_v ‖H_vv‖² / ‖H‖² of the Hessian between groups of parameters "
    "(one group for each module): the share of its squared norm that block-diagonal methods such "
    "as K-FAC discard. lambda_1, lambda_n: largest and smallest eigenvalue of the Hessian in the "
    "parameters; lambda_sup: Wolkowicz–Styan upper bound of lambda_1, from the traces of H and H². "
    "Gradient noise scale: tr Σ / |G|² in examples, the batch size at which gradient and noise are "
    "equal."
)
SHOWN = {
    CERTIFICATE: (
        "Numerical check",
        "Hessian products compared with finite differences of gradients in float64, over all "
        "batches. A kink (a ReLU at 0) that no step avoids is named.",
    ),
    "layers": (
        "Between layers",
        "R = ‖H[v,w]‖_F of the mean over all examples, C = R(v,w)/√(R(v,v) R(w,w)), "
        "D = ‖H‖_F²/‖H‖₂², gap = ‖T‖_F/‖GN‖_F (tensor part over Gauss–Newton part). Exact values "
        "have error 0.",
    ),
    "groups": (
        "Between groups of parameters",
        "The same between groups of parameters. share: of ‖H‖²; block-diagonal methods keep the "
        "rows with v = w only. The group `module` (or `module()`) holds the parameters of the "
        "module itself.",
    ),
    "eigenvalues": (
        "Eigenvalues",
        "Eigenvalues of the Hessian in the parameters; residual = ‖Hu − λu‖.",
    ),
    "batches": (
        "Errors over batches",
        "How far the numbers above lie from those of other batches: standard error over batches "
        "(jackknife), alone and relative to the number, next to the error of this estimate itself.",
    ),
    "nodes": ("Nodes", ""),
    "cost": (
        "Cost",
        "In gradients of all batches: the number of products times the time of one. The part "
        "`network` includes the checks and the timed products. Parts of more than a second were "
        "predicted within a factor of five.",
    ),
}
"""Table -> its heading, and what it holds."""
LEFT_OUT = ("seed", "part", "products", "low", "high", "version", "reason", "gauss_newton",
            "gauss_newton_error", "tensor", "tensor_error")  # fmt: skip
"""Columns that are in the CSV files alone."""
OF_ALL_STEPS = (CERTIFICATE, "cost")


def listings(tables: Tables) -> list[Listing]:
    """Every table that is shown, at its last step."""
    made = [numbers(tables["scalars"])] if "scalars" in tables else []
    for name, (heading, lead) in SHOWN.items():
        if len(table := tables.get(name, ())):
            made.append(Listing(heading, _shown(name, table), lead))
    return made


def _shown(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """The rows and columns that are shown. A number stands in one table: of errors over batches
    only these."""
    left_out = set(LEFT_OUT) - ({"part"} if name == "cost" else set())
    if name not in OF_ALL_STEPS:
        table = at_last_step(table)
    if name == "batches":
        table = table.assign(relative=table["error"] / table["value"].abs())
        left_out |= {"value"}
    if table["step"].nunique() == 1:
        left_out |= {"step"}
    return table.drop(columns=list(left_out), errors="ignore")


def numbers(scalars: pd.DataFrame) -> Listing:
    """Scalars with a column for each step."""
    steps = sorted(scalars["step"].unique())
    count = min(len(steps), MOST_STEPS)
    some = [steps[round(i * (len(steps) - 1) / max(count - 1, 1))] for i in range(count)]
    texts = scalars.assign(text=[value_text(row) for row in scalars.to_dict("records")])
    table = texts.pivot(index="quantity", columns="step", values="text")[some].fillna("")
    table = table.reindex(scalars["quantity"].unique())
    table.columns = [f"step {step}" for step in some]
    last = scalars.drop_duplicates("quantity", keep="last").set_index("quantity")
    table = table.assign(method=last["method"], remark=last["status"].replace("ok", ""))
    lead = MEANINGS
    if count < len(steps):
        lead = f"{len(steps) - count} more steps are in scalars.csv. {lead}"
    return Listing("Numbers", table.reset_index(), lead)


def shown_text(value: Any) -> str:
    """A text of a table; "" for none."""
    return value if isinstance(value, str) else ""


def value_text(row: Any) -> str:
    """A scalar with its error; '' for NaN."""
    return with_error(row["value"], row["error"])


def cost_line(tables: Tables) -> str:
    """Predicted and measured cost of all snapshots; '' where no part could be measured."""
    if "cost" not in tables:
        return ""
    cost = tables["cost"]
    steps = cost["step"].nunique()
    predicted, measured, seconds = cost[["predicted_gradients", "gradients", "seconds"]].sum()
    return (
        f"{steps} snapshot{'' if steps == 1 else 's'}; cost: predicted {predicted:.4g} "
        f"gradients, measured {measured:.4g} ({seconds:.3g} s)"
    )


def console(tables: Tables) -> Iterator[str]:
    """Numerical checks and scalars of the last step, and the cost."""
    if "cost" not in tables:
        return
    last = {name: at_last_step(table).to_dict("records") for name, table in tables.items()}
    for row in last.get(CERTIFICATE, ()):
        words = {1: f"certified, products within {row['error']:.1e} of differences of gradients"}
        words[0] = "NOT certified"
        remark = "" if row["status"] == "ok" else f"; {row['status']}"
        yield f"{row['what']}: {words.get(row['ok'], 'inconclusive')}{remark}"
    for row in last.get("scalars", ()):
        text = value_text(row)
        method = f" ({row['method']})" if text and shown_text(row["method"]) else ""
        yield f"{row['quantity']}: {text or row['status']}{method}"
    yield cost_line(tables)
