"""Metrics of all pairs of measured outputs of a ResNet-18: exact where they can be, and as the
paper estimates them.

Tables: `pairs`, one row per statistics, estimator and pair; `distances`, their averages by
distance; `networks`, loss, accuracy and parameters; `certificate`, one row per statistics;
`history` and `origin` of the training, where there is one.

statistics: of BatchNorm, "running" (as the network has them: at init mean 0 and variance 1, as
published) or "calibrated" (estimated from training images; at init only). estimator: "engine"
(Gauss–Newton part exact by factors, tensor part exact where it is zero, else from probes to a
stated error) or "published" (30 common probes, 20 power steps). The images are the first ones of
the test set.
"""

from __future__ import annotations

import copy
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.certificates import STREAM
from experiments.dag.exp6.settings import Exp6ResNet18
from experiments.dag.protocol.measure import image_sets, mean_of
from experiments.dag.protocol.probes import part_norms, spectral_norms
from experiments.dag.protocol.training import build, origin_of, train_images
from runner.contract import Cell, Context, Table
from runner.contract.records import certificate_row
from runner.curvature import CurvatureOperator, Dag, inter_layer_metrics, verify
from runner.data.images import DataError, ImageData, Split, load_images
from runner.models.network import Network
from runner.training.minibatch import evaluate

Row = dict[str, Any]
CERTIFIED = 2
"""Images of the certificate, which takes four gradients of each, one after the other."""


def measure(experiment: Exp6ResNet18, cell: Cell, ctx: Context) -> dict[str, Table]:
    """The network of a cell at its checkpoint, measured."""
    return measure_at(network_at(experiment, cell, ctx), experiment, ctx)


def measure_at(at: AtCheckpoint, experiment: Exp6ResNet18, ctx: Context) -> dict[str, Table]:
    """All tables of one cell."""
    extra: dict[str, Table] = {name: t for name, t in (("history", at.history),) if t}
    if at.origin:
        extra["origin"] = [dict(at.origin)]
    if at.network is None:
        return {"networks": [{"statistics": "running", "status": at.status}], **extra}
    networks, pairs, distances, certificate = [], [], [], []
    for statistics, network in variants(at, experiment.calibration):
        scores = {"test_loss": math.nan, "test_accuracy": math.nan}
        if at.trained:
            scores["test_loss"], scores["test_accuracy"] = evaluate(
                network, at.data.test.to(ctx.device), "cross_entropy"
            )
        row = {"statistics": statistics, **scores, "parameters": network.parameter_count}
        networks.append({**row, "status": "ok" if at.trained else "untrained: no accuracy"})
        for estimator, rows in by_estimator(network, statistics, at, experiment, ctx):
            where = {"statistics": statistics, "estimator": estimator}
            pairs += [{**where, **row} for row in rows]
            distances += [{**where, **row} for row in by_distance(rows)]
        certificate.append(certified(network, statistics, at, experiment, ctx))
        ctx.progress(len(networks), 2, f"BatchNorm statistics: {statistics}")
    return {
        "networks": networks,
        "pairs": pairs,
        "distances": distances,
        "certificate": certificate,
        **extra,
    }


def certified(
    network: Network, statistics: str, at: AtCheckpoint, experiment: Exp6ResNet18, ctx: Context
) -> dict[str, Any]:
    """The row of `certificate`: products between the measured outputs on the first images. There
    are no blocks."""
    _, x, y = next(image_sets(at.data.test, experiment.metric, ctx.device))
    operator = CurvatureOperator(network.to_dag(), x[:CERTIFIED], y[:CERTIFIED], network.measured)
    found = verify(operator, generator=ctx.torch_generator(STREAM))
    return certificate_row(f"products on {CERTIFIED} images", found, statistics=statistics)


def variants(at: AtCheckpoint, images: int) -> Iterator[tuple[str, Network]]:
    """(statistics, network): as it is, and calibrated where its BatchNorm has seen no image."""
    assert at.network is not None
    yield "running", at.network
    if identity_of_statistics(at.network):
        yield "calibrated", calibrated(at.network, at.data.train, images)


def by_estimator(
    network: Network, statistics: str, at: AtCheckpoint, experiment: Exp6ResNet18, ctx: Context
) -> Iterator[tuple[str, list[Row]]]:
    """(estimator, rows of `pairs`); the published estimates only with the published statistics."""
    _, x, y = next(image_sets(at.data.test, experiment.metric, ctx.device))
    dag = network.to_dag()
    if experiment.metric.double:
        dag, x = dag.to(torch.float64), x.double()
    nodes, budget = network.measured, int(experiment.metric.memory_gib * 2**30)
    generator = ctx.torch_generator(f"probes/engine/{statistics}")
    yield "engine", engine_rows(dag, x, y, nodes, experiment.relative_error, budget, generator)
    if statistics == "running":
        generator = ctx.torch_generator("probes/published")
        steps = experiment.power_steps if at.trained else 0
        yield "published", published_rows(dag, x, y, nodes, experiment.probes, steps, generator)


def engine_rows(
    dag: Dag,
    x: Tensor,
    y: Tensor,
    nodes: Sequence[str],
    error: float,
    budget: int,
    generator: torch.Generator,
) -> list[Row]:
    """v, w, distance, R, C, D, gn, tensor, R_error, D_error, tensor_error, method, status of every
    pair."""
    found = inter_layer_metrics(
        dag, x, y, nodes, relative_error=error, generator=generator, memory_budget=budget
    )
    rows = []
    for (v, w), m in found.items():
        row = {
            "v": v,
            "w": w,
            "distance": nodes.index(w) - nodes.index(v),
            "R": m.R.value,
            "C": m.C.value,
        }
        row |= {"D": m.D.value, "gn": m.gauss_newton.value, "tensor": m.tensor.value}
        row |= {"R_error": m.R.error, "D_error": m.D.error, "tensor_error": m.tensor.error}
        rows.append({**row, "method": m.method, "status": m.D.reason or "ok"})
    return rows


def published_rows(
    dag: Dag,
    x: Tensor,
    y: Tensor,
    nodes: Sequence[str],
    probes: int,
    steps: int,
    generator: torch.Generator,
) -> list[Row]:
    """The same from common Rademacher probes for H, H^GN and H^T, and power iteration for ‖H‖₂.

    steps: 0 leaves D out, which the paper does not print for untrained networks and which is most
    of the cost.
    """
    pairs = [(v, w) for i, v in enumerate(nodes) for w in nodes[i:]]
    parts = part_norms(dag, x, y, nodes, pairs, probes, generator)
    tops = (
        spectral_norms(CurvatureOperator(dag, x, y, nodes), pairs, steps, generator)
        if steps
        else {}
    )
    rows = []
    for v, w in pairs:
        p, r = parts[v, w], {pair: parts[pair].total.value for pair in ((v, w), (v, v), (w, w))}
        top, scale = tops[v, w] if steps else 0.0, math.sqrt(r[v, v] * r[w, w])
        row = {"v": v, "w": w, "distance": nodes.index(w) - nodes.index(v), "R": r[v, w]}
        row |= {"C": r[v, w] / scale if scale > 0 else math.nan}
        row |= {"D": (r[v, w] / top) ** 2 if top > 0 else math.nan}
        row |= {"gn": p.gauss_newton.value, "tensor": p.tensor.value}
        row |= {"R_error": p.total.error, "D_error": math.nan, "tensor_error": p.tensor.error}
        rows.append(
            {
                **row,
                "method": "probes",
                "status": "ok" if top > 0 else "D not estimated" if not steps else "zero block",
            }
        )
    return rows


def by_distance(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """distance, pairs, means of R, C and D over the pairs (of those that have one), sums of gn and
    tensor."""
    found = []
    for d in sorted({row["distance"] for row in rows}):
        at = [row for row in rows if row["distance"] == d]
        averages = {name: mean_of(row[name] for row in at) for name in ("R", "C", "D")}
        sums = {name: math.fsum(row[name] for row in at) for name in ("gn", "tensor")}
        found.append({"distance": d, "pairs": len(at), **averages, **sums, "status": "ok"})
    return found


@dataclass(frozen=True)
class AtCheckpoint:
    """A network in evaluation mode with its data. status: "ok", or why there is no network at this
    checkpoint.

    origin, history: columns of the tables of that name. trained: whether it has seen any image.
    """

    network: Network | None
    data: ImageData
    status: str = "ok"
    origin: Mapping[str, str] = field(default_factory=dict)
    history: Mapping[str, list[float]] = field(default_factory=dict)
    trained: bool = True


def network_at(experiment: Exp6ResNet18, cell: Cell, ctx: Context) -> AtCheckpoint:
    """The network of a cell. At init nothing is trained; with `folder` set, weights are read from
    there."""
    settings, checkpoint = experiment.network_settings(cell), str(cell.params["checkpoint"])
    data = load_images(experiment.dataset, ctx, flat=False)
    origin = origin_of(settings, experiment.training, data, ctx.seed)
    if experiment.folder:
        network = build(settings, ctx.seed)
        path = Path(experiment.folder) / file_name(cell, ctx.seed)
        checksum = load_weights(network, path)
        found = origin | {"initial": "", "order": "", "weights_sha256": checksum}
        return AtCheckpoint(
            network.to(ctx.device).eval(), data, origin=found, trained=checkpoint != "init"
        )
    if checkpoint == "init":
        return AtCheckpoint(
            build(settings, ctx.seed).to(ctx.device).eval(), data, origin=origin, trained=False
        )
    trained = train_images(
        settings,
        experiment.dataset,
        experiment.training,
        ctx,
        flat=False,
        save_every=1,
        until=checkpoint,
    )
    epochs = experiment.training.epochs // 2 if checkpoint == "mid" else experiment.training.epochs
    history = {name: column[: epochs + 1] for name, column in trained.training.history.items()}
    if checkpoint not in trained.training.states:
        return AtCheckpoint(None, data, trained.training.status, trained.origin, history)
    return AtCheckpoint(trained.at(checkpoint), data, origin=trained.origin, history=history)


def file_name(cell: Cell, seed: int) -> str:
    """File of a network in `folder`: relu_resnet18_seed42_final.pt."""
    return f"{cell.params['activation']}_{cell.params['arch']}_seed{seed}_{cell.params['checkpoint']}.pt"


def load_weights(network: Network, path: Path) -> str:
    """Load a state_dict, with this project's names or torchvision's, and return its file's SHA-256.

    Raises DataError for a file that is missing, is no state_dict, or does not fit the network.
    """
    try:
        content = path.read_bytes()
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        raise DataError(
            f"folder: expected a state_dict of the network in {path}, found: {text}"
        ) from error
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise DataError(
            f"folder: expected a state_dict (names to tensors) in {path}, found "
            f"{type(state).__name__}"
        )
    renamed = {own_name(name): value for name, value in state.items()}
    if extra := sorted(
        set(renamed) - set(network.state_dict())
    ):  # torch passes over what a dropped module had
        raise DataError(
            f"folder: expected weights of this network in {path}, found also {', '.join(extra[:3])}"
        )
    try:
        network.load_state_dict(renamed)
    except RuntimeError as error:
        text = " ".join(str(error).split())[:300]
        raise DataError(
            f"folder: expected weights of this network in {path}, found: {text}"
        ) from error
    return hashlib.sha256(content).hexdigest()


def own_name(name: str) -> str:
    """torchvision's name of a tensor of ResNet-18 as this project's; any other name stays.

    >>> own_name("layer2.0.downsample.0.weight"), own_name("bn1.bias"), own_name("fc.weight")
    ('stages.layer2.0.shortcut.0.weight', 'stages.stem.norm.bias', 'stages.head.linear.weight')
    """
    name = name.removeprefix("module.")
    if name.startswith("stages."):
        return name
    name = re.sub(r"^conv1\.", "stem.conv.", name)
    name = re.sub(r"^bn1\.", "stem.norm.", name)
    name = re.sub(r"^fc\.", "head.linear.", name)
    name = re.sub(r"\.bn([12])\.", r".norm\1.", name).replace(".downsample.", ".shortcut.")
    return f"stages.{name}"


@torch.no_grad()
def calibrated(network: Network, split: Split, images: int) -> Network:
    """A copy whose BatchNorm statistics are those of the first `images` training images, layer by
    layer."""
    found = copy.deepcopy(network)
    norms = [m for m in found.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the statistics of one batch as they are
    x, _ = split.first(min(images, len(split)))
    found.train()
    found(x.to(next(found.parameters()).device))
    return found.eval()


def identity_of_statistics(network: Network) -> bool:
    """Whether every BatchNorm still has the running mean 0 and variance 1 that it was made with."""
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    known = [(m.running_mean, m.running_var) for m in norms]
    return all(
        a is not None and b is not None and bool((a == 0).all() and (b == 1).all())
        for a, b in known
    )
