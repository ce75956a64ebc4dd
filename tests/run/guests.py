"""An experiment whose cells do to the process, and return, what no experiment should."""

import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch

from runner.contract import Experiment, grid

ROWS = {"value": [1.0], "status": ["ok"]}


def draw() -> dict[str, Any]:
    old = np.random.rand()  # noqa: NPY002
    return {"value": [*torch.rand(2).tolist(), old, random.random()]}


def change_defaults(folder: str = "/") -> dict[str, Any]:
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.set_num_threads(torch.get_num_threads() + 1)
    sys.setrecursionlimit(sys.getrecursionlimit() + 1)
    sys.path.insert(0, "elsewhere")
    os.chdir(folder)
    return ROWS


def fork() -> dict[str, Any]:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return ROWS


def raised(error: BaseException) -> Any:
    raise error


class Mute(Exception):
    """An error whose text cannot be made."""

    def __str__(self) -> str:
        raise ValueError


WAYS: dict[str, Callable[[], Any]] = {
    "draws": draw,
    "exits": lambda: sys.exit(0),
    "exits with a text": lambda: sys.exit("no data"),
    "raises no Exception": lambda: raised(GeneratorExit("odd")),
    "raises without a text": lambda: raised(Mute()),
    "prints": lambda: print("printed") or ROWS,
    "closes": lambda: sys.stdout.close() or ROWS,
    "changes defaults": change_defaults,
    "forks": fork,
}
TABLES: dict[str, Any] = {
    "nothing": None,
    "no table": {},
    "a list": [1.0],
    "a table of numbers": {"rows": [1.0]},
    "a frame with an index": {"rows": pd.DataFrame(ROWS, index=["first"])},
    "a frame": {"rows": pd.DataFrame(ROWS)},
    "a name with capitals": {"Rows": ROWS},
    "a name of an answer": {"claims": ROWS},
    "a long name": {"rows" * 60: ROWS},
    "two columns of one name": {"rows": pd.DataFrame([[1.0, 2.0]], columns=["value", "value"])},
    "another certificate": {"certificate": ROWS},
    "a carriage return": {"rows": {"value": ["a\rb"]}},
    "a column without a name": {"rows": {"": [1.0]}},
    "complex numbers": {"rows": {"value": [1j]}},
    "mappings": {"rows": {"value": [{"a": 1}]}},
    "rows of other lengths": {"rows": {"value": [[1], [2, 3]]}},
    "a type that numpy lacks": {"rows": {"value": torch.ones(2, dtype=torch.bfloat16)}},
}


@dataclass(frozen=True, kw_only=True)
class Guest(Experiment):
    title: ClassVar[str] = "Guest"
    way: list[str] = grid()

    def measure(self, cell, ctx):
        way = cell.params["way"]
        cell.params["way"] = "changed"
        return TABLES[way] if way in TABLES else {"rows": WAYS[way]()}
