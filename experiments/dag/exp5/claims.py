"""What the DAG paper says of Exp. 5 (Section 5.5, Table 7), decided from the tables under every protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from experiments.dag.protocol.scores import image_spread, jackknife
from experiments.dag.protocol.summary import first, groups, long_format, seed_values
from runner.contract import Claim, Statement
from runner.stats import judge
from runner.training import CHECKPOINTS

if TYPE_CHECKING:
    import pandas as pd

SHORT = {"frob_full": "full", "frob_gn": "gn", "frob_tensor": "tensor", "gap": "gap"}
"""Metric of the reference file -> column of `blocks`."""
PRINTED = "printed"
"""The protocol that decides; what became of a statement under the others is a mark."""
ZERO = "the engine routes the activation's second derivative, an exact zero of the code for ReLU; `hess-run audit "
ZERO += "dag.zeros.exp5` has the block by automatic differentiation, the audit's table `zeros` at every seed"


def claims(tables: Mapping[str, pd.DataFrame], says: Mapping[str, Statement]) -> list[Claim]:
    """One claim per statement, decided under the printed protocol; the others are marks."""
    blocks, networks, history = first(tables["blocks"]), tables["networks"], tables["history"]
    protocols = list(dict.fromkeys([*(p for p in blocks["protocol"] if p == PRINTED), *blocks["protocol"]]))

    def each(which: str, make: Callable[[str], dict[str, list[float]]], *, number: bool = False) -> Claim:
        judged = judge.number if number else judge.bound
        return judge.together({p: judged(says[which], make(p)) for p in protocols}, main=protocols[0])

    def under(table: pd.DataFrame) -> Callable[[str], pd.DataFrame]:
        return lambda protocol: table[table["protocol"] == protocol]

    attention = under(blocks[blocks["network"] == "attention"])
    found = [
        each("H5.1", lambda p: gaps(attention(p))),
        each("share of Gauss–Newton", lambda p: shares(attention(p))),
        each("stability of the gap", lambda p: stability(attention(p))),
        *structural(blocks, says),
        each("H5.3", lambda p: falls(under(networks)(p))),
        each("monotone loss", lambda p: rises(under(history)(p))),
    ]
    for network, title in (("attention", "attention"), ("relu_mlp", "ReLU network")):
        for checkpoint, when in (("init", "at init"), ("final", "at the end")):
            rows = networks[(networks["network"] == network) & (networks["checkpoint"] == checkpoint)]
            found.append(each(f"{title} MSE {when}", partial(losses_of, rows), number=True))
    for (network,), part in groups(networks.dropna(subset=["parameters"]), ["network"]):
        found.append(judge.exact(says[f"size of {network}"], {"": float(part["parameters"].iloc[0])}, "counted"))
    return found


def gaps(attention: pd.DataFrame) -> dict[str, list[float]]:
    """The gap by checkpoint."""
    return {str(c): list(seed_values(rows, "gap").values()) for (c,), rows in groups(attention, ["checkpoint"])}


def shares(attention: pd.DataFrame) -> dict[str, list[float]]:
    """‖H^GN‖ in percent of ‖H‖ at the end."""
    final = attention[attention["checkpoint"] == "final"]
    return {"final": list(100 * final["gn"] / final["full"])}


def stability(attention: pd.DataFrame) -> dict[str, list[float]]:
    """Largest over smallest gap of the three checkpoints, of means over seeds as the printed ones, by the jackknife."""
    wide = attention.pivot(index="seed", columns="checkpoint", values="gap").dropna()
    enough = wide.shape[1] == len(CHECKPOINTS)
    return {"": jackknife(wide, lambda t: float(t.mean().max() / t.mean().min())) if enough else []}


def structural(blocks: pd.DataFrame, says: Mapping[str, Statement]) -> Iterator[Claim]:
    """H5.2 and the ratio of the gaps: zeros of the code, unless a network was measured otherwise."""
    flat = blocks[blocks["network"] == "relu_mlp"]
    if flat.empty:
        return
    if (flat["tensor"] == 0).all():
        yield from (judge.constructed(says[which], ZERO) for which in ("H5.2", "separation"))
        return
    printed = blocks[blocks["protocol"] == PRINTED]
    wide = printed.pivot(index=["checkpoint", "seed"], columns="network", values="gap").dropna()
    parts = {str(c): rows for c, rows in wide.groupby("checkpoint")}
    yield judge.bound(says["H5.2"], {c: list(rows["relu_mlp"]) for c, rows in parts.items()})
    ratio = {c: list(rows["relu_mlp"] / rows["attention"]) for c, rows in parts.items()}
    yield judge.bound(says["separation"], ratio)


def falls(networks: pd.DataFrame) -> dict[str, list[float]]:
    """The larger change of the test loss, init to mid and mid to final, by network."""
    found = {}
    for (network,), part in groups(networks, ["network"]):
        wide = part.pivot(index="seed", columns="checkpoint", values="test_loss")
        if set(CHECKPOINTS) <= set(wide.columns):
            steps = [wide["mid"] - wide["init"], wide["final"] - wide["mid"]]
            found[str(network)] = [max(a, b) for a, b in zip(*steps, strict=True)]
    return found


def rises(history: pd.DataFrame) -> dict[str, list[float]]:
    """Share of the epochs in which the training loss rises, by network."""
    return {
        str(network): [float((p.sort_values("epoch")["train_loss"].diff() > 0).mean()) for _, p in part.groupby("seed")]
        for (network,), part in groups(history, ["network"])
    }


def losses_of(networks: pd.DataFrame, protocol: str) -> dict[str, list[float]]:
    """`losses` of the rows of a protocol."""
    return losses(networks[networks["protocol"] == protocol])


def losses(networks: pd.DataFrame) -> dict[str, list[float]]:
    """Test losses of one network at one checkpoint."""
    return {"": list(seed_values(networks.dropna(subset=["test_loss"]), "test_loss").values())}


def fitted(protocol: str) -> str:
    """Why a protocol counts as fitted, '' for the printed one."""
    return "" if protocol == PRINTED else "this protocol was chosen by looking at these numbers"


def measured(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Values of Table 7 and the test losses of the text, one row per seed."""
    import pandas as pd

    keys = ["protocol", "network", "checkpoint"]
    rows = tables["networks"].dropna(subset=["test_loss"])
    blocks = long_format(first(tables["blocks"]), keys, SHORT)
    blocks = blocks.merge(image_spread(tables["blocks"], keys, SHORT), on=[*keys, "metric"], how="left")
    found = pd.concat([blocks, long_format(rows, keys, {"test_mse": "test_loss"})], ignore_index=True)
    return found.assign(fitted=found["protocol"].map(fitted))


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


def repeated(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """How many facts the printed norms of the ReLU network are."""
    own = tables["blocks"][lambda t: (t["network"] == "relu_mlp") & (t["protocol"] == "printed")]
    facts = own["checkpoint"].nunique()
    if own.empty or (own["full"] != own["gn"]).any():
        return []
    return [
        f"‖H‖ and ‖H^GN‖ of the ReLU network are one number, since H^T = 0: their {2 * facts} rows are "
        f"{facts} facts. They hang on the pair of blocks: the text names block0-block1, "
        "and what each other pair gives stands in the findings of exp5_protocol_grid."
    ]
