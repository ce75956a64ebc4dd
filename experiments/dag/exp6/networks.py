"""The networks of Exp. 6 at one checkpoint: untrained, trained here, or read from a folder of trained ones."""

from __future__ import annotations

import copy
import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from experiments.dag.protocol.training import build, origin_of, train_images
from runner.contract import Cell, Context
from runner.data.images import DataError, ImageData, Split
from runner.data.loading import load_images
from runner.models import Network

if TYPE_CHECKING:
    from experiments.dag.exp6.settings import Exp6ResNet18


@dataclass(frozen=True)
class AtCheckpoint:
    """A network in evaluation mode with its data. status: "ok", or why there is no network at this checkpoint.

    origin, history: columns of the tables of that name. trained: whether it has seen any image.
    """

    network: Network | None
    data: ImageData
    status: str = "ok"
    origin: Mapping[str, str] = field(default_factory=dict)
    history: Mapping[str, list[float]] = field(default_factory=dict)
    trained: bool = True


def network_at(experiment: Exp6ResNet18, cell: Cell, ctx: Context) -> AtCheckpoint:
    """The network of a cell. At init nothing is trained; with `folder` set, weights are read from there."""
    settings, checkpoint = experiment.network_settings(cell), str(cell.params["checkpoint"])
    data = load_images(experiment.dataset, ctx, flat=False)
    origin = origin_of(settings, experiment.training, data, ctx.seed)
    if experiment.folder:
        network = build(settings, ctx.seed)
        path = Path(experiment.folder) / file_name(cell, ctx.seed)
        checksum = load_weights(network, path)
        found = origin | {"initial": "", "order": "", "weights_sha256": checksum}
        return AtCheckpoint(network.to(ctx.device).eval(), data, origin=found, trained=checkpoint != "init")
    if checkpoint == "init":
        return AtCheckpoint(build(settings, ctx.seed).to(ctx.device).eval(), data, origin=origin, trained=False)
    trained = train_images(
        settings, experiment.dataset, experiment.training, ctx, flat=False, save_every=1, until=checkpoint
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
        raise DataError(f"folder: expected a state_dict of the network in {path}, found: {text}") from error
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise DataError(f"folder: expected a state_dict (names to tensors) in {path}, found {type(state).__name__}")
    renamed = {own_name(name): value for name, value in state.items()}
    if extra := sorted(set(renamed) - set(network.state_dict())):  # torch passes over what a dropped module had
        raise DataError(f"folder: expected weights of this network in {path}, found also {', '.join(extra[:3])}")
    try:
        network.load_state_dict(renamed)
    except RuntimeError as error:
        text = " ".join(str(error).split())[:300]
        raise DataError(f"folder: expected weights of this network in {path}, found: {text}") from error
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
    """A copy whose BatchNorm statistics are those of the first `images` training images, layer by layer."""
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
    return all(_is(m.running_mean, 0.0) and _is(m.running_var, 1.0) for m in norms)


def _is(values: Any, wanted: float) -> bool:
    return values is not None and math.isclose(float((values - wanted).abs().max()), 0.0, abs_tol=0.0)
