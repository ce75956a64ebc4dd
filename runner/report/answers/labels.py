"""Human names of identifiers, from labels.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".toml")
LABELS: Mapping[str, str] = tomllib.loads(FILE.read_text(encoding="utf-8"))
KEYS_WITH_NAME = ("depth", "distance", "hidden", "width", "d_u", "k", "probes", "pair")
"""Keys whose value says nothing without their name."""
FIRST = "metric"


def label(text: Any) -> str:
    """The human name of an identifier; the identifier itself, with spaces, where it has none.

    >>> label("gelu"), label("gap_global"), label("some_part")
    ('GELU', 'GN gap', 'some part')
    """
    word = str(text)
    return LABELS.get(word, LABELS.get(word.lower(), word.replace("_", " ")))


NAMES = (
    "relu",
    "leaky_relu",
    "gelu",
    "silu",
    "sgd",
    "sam",
    "asam",
    "hsr",
    "resnet18",
)
"""Identifiers of activations, methods and networks, for legends."""


def name(text: str) -> str:
    """A legend entry with its activation, method or network spelt as in print.

    >>> name("gelu"), name("gelu, final"), name("mean")
    ('GELU', 'GELU, final', 'mean')
    """
    first, comma, rest = text.partition(",")
    return f"{LABELS[first]}{comma}{rest}" if first in NAMES else text


def row_label(keys: Mapping[str, Any]) -> str:
    """The human name of a published number, from its key columns.

    >>> row_label({"activation": "gelu", "checkpoint": "final", "metric": "gap", "depth": "8"})
    'GN gap, GELU, after training, depth 8'
    """
    parts = []
    if keys.get(FIRST):
        parts = [label(keys[FIRST])]
    for key, value in _rest(keys):
        needs_name = key in KEYS_WITH_NAME or re.fullmatch(r"[-\d.]+", str(value))
        parts.append(f"{label(key)} {value}" if needs_name else label(value))
    return ", ".join(parts)


def _rest(keys: Mapping[str, Any]) -> list[tuple[str, Any]]:
    left_out = (FIRST, "experiment", "table")
    rest = [(key, value) for key, value in keys.items() if key not in left_out and value != ""]
    return sorted(rest, key=lambda item: item[0] in KEYS_WITH_NAME)
