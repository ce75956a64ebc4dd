"""Weights of a ResNet-18 from a file, with this project's names of tensors or torchvision's."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import torch
from torch import Tensor

from runner.contract import Cell
from runner.data.images import DataError
from runner.models.network import Network


def file_name(cell: Cell, seed: int) -> str:
    """File of a network in `folder`: relu_resnet18_seed42_final.pt."""
    activation, arch, checkpoint = (
        cell.params[name] for name in ("activation", "arch", "checkpoint")
    )
    return f"{activation}_{arch}_seed{seed}_{checkpoint}.pt"


def load_weights(network: Network, path: Path) -> str:
    """Load a state_dict, with this project's names or torchvision's, and return its file's SHA-256.

    Raises DataError for a file that is missing, is no state_dict, or does not fit the network.
    """
    try:
        content = path.read_bytes()
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise _unlike("a state_dict of the network", path, _text(error, 200)) from error
    if isinstance(state, dict):
        state = state.get("state_dict", state)
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        kind = type(state).__name__
        raise _unlike("a state_dict (names to tensors)", path, kind)
    renamed = {own_name(name): value for name, value in state.items()}
    # torch passes over what a dropped module had
    unknown = sorted(set(renamed) - set(network.state_dict()))
    if unknown:
        raise _unlike("weights of this network", path, f"also {', '.join(unknown[:3])}")
    try:
        network.load_state_dict(renamed)
    except RuntimeError as error:
        raise _unlike("weights of this network", path, _text(error, 300)) from error
    return hashlib.sha256(content).hexdigest()


def _text(error: Exception, length: int) -> str:
    return " ".join(str(error).split())[:length]


def _unlike(expected: str, path: Path, found: str) -> DataError:
    return DataError(f"folder: expected {expected} in {path}, found {found}")


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
