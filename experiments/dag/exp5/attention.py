"""DAG, Exp. 5: the tensor part of the (query, key) block of softmax attention, against a position-wise ReLU network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from runner.contract.experiment import Cell, Claim, Context, Experiment, SettingError, Table, grid, one_of, since
from runner.data.attention import AttentionData
from runner.metrics.inter_layer import InterLayerMetric
from runner.models.kinds.attention import AttentionModel
from runner.training.kinds.minibatch import MinibatchTraining

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from runner.stats import Statistic

NETWORKS = ("attention", "relu_mlp")
PAIRS = {"attention": ("q", "k"), "relu_mlp": ("block0", "block1")}
"""The two nodes whose block is measured."""
PRINTED = "printed"


@dataclass(frozen=True, kw_only=True)
class Exp5Attention(Experiment):
    """Settings, each explained in conf/experiment/exp5_attention.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Tensor part of the query-key block of attention"
    paper: ClassVar[str] = "DAG"
    reproduces: ClassVar[str] = "Table 7; seven protocols"

    protocol: list[str] = grid()
    network: list[str] = grid()
    mlp_depth: int
    resampled: list[str]
    protocols: dict[str, Any]
    dataset: AttentionData
    model: AttentionModel = since(AttentionModel())
    metric: InterLayerMetric
    training: MinibatchTraining

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("experiment.network", self.network, NETWORKS)
        one_of("experiment.protocol", self.protocol, self.protocols)
        one_of("experiment.resampled", self.resampled, self.protocols)
        if self.mlp_depth < 2:
            raise SettingError(f"experiment.mlp_depth: expected at least the 2 measured blocks, found {self.mlp_depth}")
        if self.model.width != self.dataset.width:
            raise SettingError(f"model.width: expected the tokens' {self.dataset.width}, found {self.model.width}")
        if self.metric.examples > self.dataset.validation:
            found = f"{self.dataset.validation} validation samples, found {self.metric.examples}"
            raise SettingError(f"metric.examples: expected at most the {found}")
        for name in self.protocol:
            self.under(name)

    def under(self, protocol: str) -> tuple[AttentionData, MinibatchTraining]:
        """Data and training with the changes of a protocol. Raises SettingError for a change that is none of theirs."""
        groups: dict[str, Any] = {"dataset": self.dataset, "training": self.training}
        for key, value in dict(self.protocols[protocol]).items():
            group, _, name = key.partition(".")
            known = [f"{g}.{f.name}" for g, settings in groups.items() for f in fields(settings)]
            one_of(f"experiment.protocols.{protocol}", key, known)
            kind = type(getattr(groups[group], name))
            if not (isinstance(value, kind) or (kind is float and isinstance(value, int))):
                raise SettingError(
                    f"experiment.protocols.{protocol}: expected {kind.__name__} for {key}, found {value!r}"
                )
            groups[group] = replace(groups[group], **{name: value})
        return groups["dataset"], groups["training"]

    def cells(self) -> list[Cell]:
        steps = self.training.epochs * self.dataset.train / 2048
        cells = []
        for params in self.combinations():
            sets = 1 + (self.metric.subsamples if params["protocol"] in self.resampled else 0)
            block = (0.25 if params["network"] == "attention" else 0.03) * self.metric.examples / 64
            cells.append(Cell(params, round(0.3 + 0.02 * steps + 3 * sets * block, 1)))
        return cells

    def network_settings(self, network: str) -> dict[str, Any]:
        """Builder of `runner.models` and its arguments."""
        if network == "attention":
            return self.model.network()
        shape = {"width": self.dataset.width, "depth": self.mlp_depth, "activation": "relu"}
        return {"builder": "positionwise_mlp", **shape}

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.dag.exp5.measure import measure
        from experiments.dag.protocol.training import train_regression

        network, protocol = str(cell.params["network"]), str(cell.params["protocol"])
        dataset, training = self.under(protocol)
        trained = train_regression(self.network_settings(network), dataset, training, ctx)
        metric = self.metric if protocol in self.resampled else replace(self.metric, subsamples=0)
        return measure(trained, PAIRS[network], metric, ctx)

    def figures(self, tables: Mapping[str, pd.DataFrame]) -> Mapping[str, Figure | Callable[[], Figure]]:
        from experiments.dag.exp5 import figures as draw

        blocks, networks = tables["blocks"], tables["networks"]
        return {
            "table7_norms": lambda: draw.norms(blocks[blocks["protocol"] == PRINTED]),
            "gap_by_protocol": lambda: draw.by_protocol(blocks),
            "loss_by_protocol": lambda: draw.losses(tables["history"]),
            "value_path": lambda: draw.value_path(blocks, networks),
            "sample_sets": lambda: draw.sample_sets(blocks[blocks["protocol"] == PRINTED]),
        }

    def statistics(self, tables: Mapping[str, pd.DataFrame]) -> list[Statistic]:
        from experiments.dag.protocol import comparisons

        blocks, where = tables["blocks"], ["protocol", "checkpoint"]
        rows = comparisons.between(
            blocks, "gap", column="network", a="attention", b="relu_mlp", keys=where, figure="gap_by_protocol"
        )
        for value in ("gap", "full", "gn"):
            rows += comparisons.through_training(
                blocks, value, keys=["protocol", "network"], figure=f"{value} through training"
            )
        for value in ("gap", "full"):
            again = blocks[blocks["protocol"].isin(self.resampled)]
            rows += comparisons.variance_rows(again, value, keys=["network", *where], figure="sample_sets")
        return rows

    def claims(self, tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
        from experiments.dag.exp5.claims import claims

        return claims(tables)

    def measured(self, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame | None:
        from experiments.dag.exp5.claims import measured

        return measured(tables)

    def comparable(self) -> str:
        wanted = {"train": 2048, "validation": 512, "tokens": 8, "width": 16, "noise": 0.1, "teacher_seed": 0}
        wanted |= {"response": "tanh", "spread": 1.0, "offset": 0.0}
        changed = [f"dataset.{k}" for k, v in wanted.items() if getattr(self.dataset, k) != v]
        wanted = {"optimizer": "adam", "rate": 1e-3, "weight_decay": 1e-4, "clip": 1.0, "batch": 128, "epochs": 30}
        changed += [f"training.{k}" for k, v in wanted.items() if getattr(self.training, k) != v]
        changed += ["metric.examples"] * (self.metric.examples != 64) + ["experiment.mlp_depth"] * (self.mlp_depth != 3)
        changed += ["metric.subsample"] * (self.metric.subsample != "first")
        changed += ["experiment.protocols.printed"] * bool(self.protocols.get(PRINTED))
        return f"not the paper's protocol: {', '.join(changed)} changed" if changed else ""

    def notes(self, tables: Mapping[str, pd.DataFrame]) -> list[str]:
        from experiments.dag.exp5.claims import notes

        return notes(tables)
