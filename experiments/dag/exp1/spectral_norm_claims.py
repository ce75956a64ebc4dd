"""What the DAG paper says of Exp. 1b (Appendix N.1, Fig. N.1), decided from the tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from experiments.dag.exp1.claims import ENDS, decades, on_own, text, values_at
from experiments.dag.protocol.scores import facts, fit_of_means, published_start
from experiments.dag.protocol.summary import first, groups, seed_values
from runner.contract import Claim, Statement
from runner.stats import judge

if TYPE_CHECKING:
    import pandas as pd

VARIANT = ["depth", "arch", "checkpoint"]
PLAIN = "plain_sn"
SHALLOW, DEEP = 8, 16
"""The least depth, at which rho reaches 1 in training, and the one whose decay Fig. N.1 puts into orders."""


def claims(tables: Mapping[str, pd.DataFrame], says: Mapping[str, Statement]) -> list[Claim]:
    """One claim per statement; depths and checkpoints are its parts."""
    networks, same = first(tables["networks"]), published_start(tables)
    return [
        *dynamics(networks, says, same),
        *decay(first(tables["distances"]), says, same),
        *accuracies(networks, says),
    ]


def accuracies(networks: pd.DataFrame, says: Mapping[str, Statement]) -> list[Claim]:
    """Accuracy of the spectrally normalised networks by depth, and of the residual ones."""
    plain = {k[0]: seed_values(rows, "test_accuracy") for k, rows in rows_of(networks, "final").items()}
    start = plain.get(SHALLOW, {})
    shares = {
        f"L={depth}": [values[s] / start[s] for s in values if s in start]
        for depth, values in plain.items()
        if depth != SHALLOW
    }
    final = networks[(networks["arch"] == "residual") & (networks["checkpoint"] == "final")]
    percent = {
        f"L={k[0]}": [100 * v for v in seed_values(rows, "test_accuracy").values()]
        for k, rows in groups(final, ["depth"])
    }
    return [
        judge.bound(says["accuracy drops"], shares),
        judge.number(says["accuracy of residual networks"], percent),
    ]


def rows_of(table: pd.DataFrame, checkpoint: str | None = None) -> dict[tuple[int, str, str], pd.DataFrame]:
    """(depth, arch, checkpoint) -> rows of the spectrally normalised networks, at one checkpoint or at both ends."""
    wanted = (checkpoint,) if checkpoint else ENDS
    return {k: rows for k, rows in groups(table[table["arch"] == PLAIN], VARIANT) if k[2] in wanted}


def dynamics(networks: pd.DataFrame, says: Mapping[str, Statement], same: bool) -> list[Claim]:
    """rho and λ₁ by depth and checkpoint; same: see `on_own`."""

    def values(column: str, checkpoint: str | None = None) -> dict[str, list[float]]:
        found = rows_of(networks, checkpoint)
        return {text(k): list(seed_values(rows, column).values()) for k, rows in found.items()}

    after = {k: v for k, v in values("rho", "final").items() if k.startswith(f"L={SHALLOW} ")}
    return [
        on_own(says["contracting"], values("lyapunov_1"), same),
        on_own(says["exponent at init"], values("lyapunov_1", "init"), same),
        judge.bound(says["exponent after training"], values("lyapunov_1", "final")),
        on_own(says["rho below 1"], values("rho", "init"), same),
        judge.bound(says["rho after training"], after),
    ]


def decay(distances: pd.DataFrame, says: Mapping[str, Statement], same: bool) -> list[Claim]:
    """R(d) by depth and checkpoint; same: see `on_own`."""
    init, final = rows_of(distances, "init"), rows_of(distances, "final")
    shallow = {text(k): rows for k, rows in final.items() if k[0] == SHALLOW}
    deep = {text(k): decades(rows, k[0]) for k, rows in init.items() if k[0] == DEEP}
    return [
        on_own(says["R² of log R"], {text(k): fit_of_means(rows, "R") for k, rows in init.items()}, same),
        judge.number(says["decay in orders"], deep, same=facts(deep, same)),
        judge.bound(
            says["decay after training"],
            {text(k): decades(rows, k[0]) for k, rows in final.items() if k[0] > SHALLOW},
        ),
        judge.number(
            says["plateau of R"],
            {k: [float(p["R"].mean()) for _, p in rows.groupby("seed")] for k, rows in shallow.items()},
        ),
        judge.bound(says["flatness of R"], {k: losses(rows) for k, rows in shallow.items()}),
    ]


def losses(rows: pd.DataFrame) -> list[float]:
    """Share of R(0) that is lost at the largest distance, seed by seed."""
    start, end = values_at(rows, "R", 0), values_at(rows, "R", int(rows["distance"].max()))
    return [1 - end[seed] / start[seed] for seed in start if seed in end]
