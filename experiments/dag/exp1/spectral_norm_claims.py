"""What the DAG paper says of Exp. 1b, spectral normalisation (Section 5.1; Appendix N.1), decided
from the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from experiments.dag.exp1.claims import TEXT, VARIANT, log_fall
from experiments.dag.protocol.scores import fit_of_means, published_start
from experiments.dag.protocol.statements import Groups, Judge
from experiments.dag.protocol.summary import at_ends, first, in_percent, per_seed
from runner.contract import Claim, Statement, Tables
from runner.stats.tables import chosen, seed_values

PLAIN = "plain_sn"
SHALLOW = 8
DEEP = 16
"""The least depth, at which rho reaches 1 in training, and the one whose decay Fig. N.1 puts into
orders."""


def claims(tables: Tables, says: Mapping[str, Statement]) -> Iterator[Claim]:
    """The claims of Exp. 1b, one per statement; depths and checkpoints are its parts."""
    decide = Judge(says, published_start(tables))
    networks = first(tables["networks"])
    yield from dynamics(normalised(networks), decide)
    yield from decay(normalised(first(tables["distances"])), decide)
    yield from accuracies(networks, decide)


def normalised(table: pd.DataFrame) -> Groups:
    """The spectrally normalised networks before and after training."""
    ends = at_ends(chosen(table, arch=PLAIN))
    return Groups(ends, VARIANT, TEXT)


def accuracies(networks: pd.DataFrame, decide: Judge) -> Iterator[Claim]:
    """Accuracy of the spectrally normalised networks by depth, and of the residual ones."""
    final = chosen(networks, checkpoint="final")
    depths = Groups(final, ["depth"], "L={depth}")
    plain = depths.only(arch=PLAIN).each(seed_values, "test_accuracy")
    start = plain.pop(f"L={SHALLOW}", {})
    shares = {}
    for name, values in plain.items():
        shares[name] = [values[seed] / start[seed] for seed in values if seed in start]
    by_depth = Groups(in_percent(final), ["depth"], "L={depth}")
    percent = by_depth.only(arch="residual")
    yield decide.bound("accuracy drops", shares)
    yield decide.number("accuracy of residual networks", percent.values("percent"))


def dynamics(networks: Groups, decide: Judge) -> Iterator[Claim]:
    """rho and λ₁ by depth and checkpoint."""
    init = networks.only(checkpoint="init")
    final = networks.only(checkpoint="final")
    after = final.only(depth=SHALLOW).values("rho")
    yield decide.on_own("contracting", networks.values("lyapunov_1"))
    yield decide.on_own("exponent at init", init.values("lyapunov_1"))
    yield decide.bound("exponent after training", final.values("lyapunov_1"))
    yield decide.on_own("rho below 1", init.values("rho"))
    yield decide.bound("rho after training", after)


def decay(curves: Groups, decide: Judge) -> Iterator[Claim]:
    """R(d) by depth and checkpoint."""
    init = curves.only(checkpoint="init")
    final = curves.only(checkpoint="final")
    shallow = final.only(depth=SHALLOW)
    deep = final.table[final.table["depth"] > SHALLOW]
    deeper = Groups(deep, VARIANT, TEXT)
    yield decide.on_own("R² of log R", init.each(fit_of_means, "R"))
    falls = init.only(depth=DEEP).each(log_fall)
    yield decide.on_own("decay in orders", falls)
    yield decide.bound("decay after training", deeper.each(log_fall))
    yield decide.number("plateau of R", shallow.values("R", "mean"))
    yield decide.bound("flatness of R", shallow.each(losses))


def losses(rows: pd.DataFrame) -> list[float]:
    """Share of R(0) that is lost at the largest distance, seed by seed."""
    wide = per_seed(rows, "R")
    last = wide[wide.columns.max()]
    return list(1 - last / wide[0])
