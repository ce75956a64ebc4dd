"""What the DAG paper says of Exp. 5 (Section 5.5, Table 7), decided from the tables under every protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from experiments.dag.protocol.summary import first, groups, long_format, seed_values
from runner.contract.experiment import Claim, decide
from runner.stats import judge
from runner.training import CHECKPOINTS

if TYPE_CHECKING:
    import pandas as pd

PLACE = "Section 5.5"
SHORT = {"frob_full": "full", "frob_gn": "gn", "frob_tensor": "tensor", "gap": "gap"}
"""Metric of the reference file -> column of `blocks`."""
PARAMETERS = {"attention": 785, "relu_mlp": 833}


def claims(tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
    """One claim per statement and protocol."""
    blocks, networks, history = first(tables["blocks"]), tables["networks"], tables["history"]
    found: list[Claim] = []
    for (protocol,), part in groups(blocks, ["protocol"]):
        found += list(gaps(part, protocol))
        found += list(
            convergence(networks[networks["protocol"] == protocol], history[history["protocol"] == protocol], protocol)
        )
    for (network,), part in groups(networks.dropna(subset=["parameters"]), ["network"]):
        printed, count = PARAMETERS[network], float(part["parameters"].iloc[0])
        statement = f"{network} has {printed} parameters"
        same = decide(count == printed)
        found.append(Claim(f"size of {network}", statement, PLACE, same, count, f"{printed}", "counted"))
    return found


def gaps(part: pd.DataFrame, protocol: str) -> Iterator[Claim]:
    """H5.1 and H5.2 under one protocol."""
    by = {(n, c): rows for (n, c), rows in groups(part, ["network", "checkpoint"])}
    for checkpoint in CHECKPOINTS:
        group = f"protocol={protocol} {checkpoint}"
        attention, mlp = by.get(("attention", checkpoint)), by.get(("relu_mlp", checkpoint))
        if attention is not None:
            gap = seed_values(attention, "gap")
            yield judge.bound(
                "H5.1",
                gap.values(),
                low=1.0,
                group=group,
                where=PLACE,
                statement="the (Q, K) gap is substantially nonzero (read as: above 1)",
            )
            share = attention.assign(percent=100 * attention["gn"] / attention["full"])
            yield judge.bound(
                "share of Gauss–Newton",
                seed_values(share, "percent").values(),
                high=2.0,
                group=group,
                where=PLACE,
                statement="‖H^GN‖ is below 2 % of ‖H‖ for (Q, K)",
            )
        if mlp is not None:
            zero = seed_values(mlp, "gap")
            yield judge.bound(
                "H5.2",
                zero.values(),
                high=1e-6,
                group=group,
                where=PLACE,
                statement="the ReLU gap is zero to machine precision (read as: below 1e-6)",
            )
        if attention is not None and mlp is not None:
            ratio = [zero[seed] / gap[seed] for seed in sorted(set(zero) & set(gap))]
            statement = "the ratio of the gaps exceeds 1e7 (inverse ratio; the ReLU tensor part can be exactly 0)"
            yield judge.bound("separation", ratio, high=1e-7, group=group, where=PLACE, statement=statement)
    wide = part[part["network"] == "attention"].pivot(index="seed", columns="checkpoint", values="gap").dropna()
    if len(wide) and wide.shape[1] == len(CHECKPOINTS):
        ratio = list(wide.max(axis=1) / wide.min(axis=1))
        yield judge.bound(
            "stability of the gap",
            ratio,
            high=1.5,
            group=f"protocol={protocol}",
            where=PLACE,
            statement="the gap is stable across checkpoints (57.5, 79.9, 69.3: largest over smallest below 1.5)",
        )


def convergence(networks: pd.DataFrame, history: pd.DataFrame, protocol: str) -> Iterator[Claim]:
    """H5.3 under one protocol."""
    for (network,), part in groups(networks, ["network"]):
        wide = part.pivot(index="seed", columns="checkpoint", values="test_loss")
        if not set(CHECKPOINTS) <= set(wide.columns):
            continue
        wide = wide.dropna()
        group = f"protocol={protocol} {network}"
        steps = [max(row["mid"] - row["init"], row["final"] - row["mid"]) for _, row in wide.iterrows()]
        yield judge.bound(
            "H5.3",
            steps,
            high=0.0,
            group=group,
            where=PLACE,
            statement="the test loss falls from init to mid to final (largest change)",
        )
        rises = [
            float((p.sort_values("epoch")["train_loss"].diff() > 0).mean())
            for _, p in history[history["network"] == network].groupby("seed")
        ]
        yield judge.bound(
            "monotone loss",
            rises,
            high=0.0,
            group=group,
            where=PLACE,
            statement="the loss decreases monotonically: share of epochs in which it rises",
        )
        printed = {"attention": 0.57, "relu_mlp": 0.03}[network]
        yield judge.number(
            "final test MSE",
            wide["final"],
            printed,
            0.005,
            group=group,
            where=PLACE,
            statement=f"{network} ends at a test MSE of {printed}",
        )


def measured(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Values of Table 7 and the test losses of the text, one row per seed."""
    import pandas as pd

    keys = ["protocol", "network", "checkpoint"]
    losses = tables["networks"].dropna(subset=["test_loss"])
    return pd.concat(
        [long_format(first(tables["blocks"]), keys, SHORT), long_format(losses, keys, {"test_mse": "test_loss"})],
        ignore_index=True,
    )


def notes(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Findings in plain words."""
    blocks, networks = first(tables["blocks"]), tables["networks"]
    found = []
    for (protocol,), part in groups(blocks[blocks["network"] == "attention"], ["protocol"]):
        mean = part.groupby("checkpoint")[["gap", "tensor", "gn"]].mean()
        own = networks[(networks["protocol"] == protocol) & (networks["network"] == "attention")]
        path = own.groupby("checkpoint")[["value_path", "test_loss"]].mean()
        if set(CHECKPOINTS) <= set(mean.index):
            gap = ", ".join(f"{mean.loc[c, 'gap']:.3g}" for c in CHECKPOINTS)
            found.append(
                f"{protocol}: (Q, K) gap {gap} at init, mid, final; test MSE {path.loc['init', 'test_loss']:.2f} to "
                f"{path.loc['final', 'test_loss']:.2f}; ‖W_Vᵀ w‖ grows by {path.loc['final', 'value_path'] / path.loc['init', 'value_path']:.2f}, "  # noqa: E501
                f"‖H^T‖ by {mean.loc['final', 'tensor'] / mean.loc['init', 'tensor']:.2f}, ‖H^GN‖ by "
                f"{mean.loc['final', 'gn'] / mean.loc['init', 'gn']:.2f}."
            )
    if found:
        found.append(
            "‖H^T‖ of (Q, K) goes with |residual|·‖W_Vᵀ w‖, ‖H^GN‖ with ‖W_Vᵀ w‖²·‖W_Q‖·‖W_K‖. The published ‖H^T‖ and "
            "‖H^GN‖, 0.57 and 0.5 times their initial values at the end, mean a value path that did not grow: that "
            "network left the linear part of its target unlearned, and its loss fell by the bias alone. The printed "
            "teacher is odd and mostly linear, and attention learns it. Strong weight decay keeps the gap high too, "
            "by shrinking W_Q and W_K, but makes ‖H^T‖ grow."
        )
    return found
