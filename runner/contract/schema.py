"""What settings are made of: checks of values, and fields that say how they enter a cell's identity.

This module knows neither Hydra nor torch. Experiments and the kinds of the groups (dataset, model, metric, training)
are dataclasses whose fields come from YAML files; a file names its class in `_target_`, and an experiment says by the
annotations of its fields which classes it takes. `runner.run.config` fills them and turns unknown keys, wrong types
and kinds that do not fit into one-line errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, field
from difflib import get_close_matches
from typing import Any

GROUPS = ("dataset", "model", "metric", "training")
"""The configuration groups that an experiment may use, by a field of that name."""


class SettingError(ValueError):
    """A setting that cannot be used; the text says what was expected, what was found and what to do."""


def positive(name: str, value: float | int | Sequence[float]) -> None:
    """Refuse values at or below zero; `value` may be a sequence."""
    for item in value if isinstance(value, list | tuple) else (value,):
        if not item > 0:
            raise SettingError(f"{name}: expected a value above zero, found {item}")


def non_negative(name: str, value: float | int | Sequence[float]) -> None:
    """Refuse values below zero; `value` may be a sequence."""
    for item in value if isinstance(value, list | tuple) else (value,):
        if not item >= 0:
            raise SettingError(f"{name}: expected zero or more, found {item}")


def one_of(name: str, value: Any, choices: Iterable[Any]) -> None:
    """Refuse values outside `choices`, offering the nearest; `value` may be a sequence."""
    known = list(choices)
    for item in value if isinstance(value, list | tuple) else (value,):
        if item not in known:
            near = get_close_matches(str(item), [str(k) for k in known], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SettingError(f"{name}: expected one of {', '.join(map(str, known))}, found {item}{hint}")


def not_empty(name: str, value: Sequence[Any]) -> None:
    """Refuse an empty grid."""
    if len(value) == 0:
        raise SettingError(f"{name}: expected at least one value, found an empty list")


def grid(default: Sequence[Any] | None = None) -> Any:
    """Field of an experiment that lists values of a cell parameter.

    A grid field says which cells there are, not what a cell means, so it stays out of the cell's identity. It bears
    the name of the cell parameter (singular), and a single value given for it counts as a list of one.
    """
    if default is None:
        return field(metadata={"grid": True})
    return field(default_factory=lambda: list(default), metadata={"grid": True})


def report_only(default: Any = None) -> Any:
    """Field that changes figures or claims but no measured number; it stays out of the cell's identity."""
    if isinstance(default, list | dict | set):
        return field(default_factory=lambda: type(default)(default), metadata={"report": True})
    return field(default=default, metadata={"report": True})


def free(default: Any = MISSING) -> Any:
    """Field that may differ from the paper's protocol without making a run incomparable with its numbers.

    It changes tables, and so the identity of cells: the number of random subsets beside the paper's own, the fineness
    of a drawing, a number of repetitions. Without a default the YAML file must give it.
    """
    if isinstance(default, list | dict | set):
        return field(default_factory=lambda: type(default)(default), metadata={"free": True})
    return field(default=default, metadata={"free": True})


def since(default: Any, *, free: bool = False) -> Any:
    """Field added to a settings class that already has stored cells.

    While it holds its default it stays out of the identity, so that every cell measured before the field existed keeps
    its id; any other value enters the identity like that of an ordinary field. The default must therefore mean what
    the code did before. free: it may also differ from the paper's protocol, as fields made with `free()`.
    """
    marks = {"since": default} | ({"free": True} if free else {})
    if isinstance(default, list | dict | set):
        return field(default_factory=lambda: type(default)(default), metadata=marks)
    return field(default=default, metadata=marks)


def kind(name: str, *, stored: str = "") -> Any:
    """Field `kind` of a group's settings: the name of its YAML file, part of every cell's identity.

    stored: the name under which cells were stored before the kind was renamed. Identities are still made with it, so
    that renaming a file loses no result.
    """
    return field(default=name, metadata={"stored": {name: stored or name}})
