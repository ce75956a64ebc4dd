"""Fields of settings: what values they may take, and how they enter a cell's identity.

This module knows neither Hydra nor torch. Experiments and the kinds of the groups (dataset, model,
metric, training) are dataclasses whose fields come from YAML files; a file names its class in
`_target_`, and an experiment says by the annotations of its fields which classes it takes.
`runner.run.config` fills them and turns unknown keys, wrong types and kinds that do not fit into
one-line errors.

A field declares its limits where it is made, as metadata:

    steps: int = setting(50, above=0, unit="steps", help="of gradient descent")
    activation: list[str] = grid(choices=("relu", "tanh"))
    share: float = report_only(0.8, above=0, at_most=1)

`Experiment` checks the limits of all its fields and groups when it is made; `hess-run list NAME`
prints them.
"""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from runner.contract.nearest import did_you_mean
from runner.contract.words import short

GROUPS = ("dataset", "model", "metric", "training")
"""The configuration groups that an experiment may use, by a field of that name."""


class SettingError(ValueError):
    """A setting that cannot be used; the text says what was expected, what was found and what to
    do."""


LARGEST = 2**63 - 1
"""The largest whole number that torch and numpy take."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The values that a field may take. Of a list, and of the values of a mapping, every item is
    checked.

    Parameters
    ----------
    choices : the values that there are; empty for any.
    keys : the keys that a mapping may have; empty for any.
    above, at_least, below, at_most : bounds of a number; `above` and `below` are exclusive.
    off : one more value, which switches off what the setting is for.
    filled : whether a list needs at least one item, and each only once.
    length : how many items a list must have; 0 for any number.
    infinite : whether a number may be infinite; NaN is never taken.
    unit : of the value, for `hess-run list NAME`.
    """

    choices: Sequence[Any] = ()
    keys: Sequence[str] = ()
    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None
    off: float | None = None
    filled: bool = False
    length: int = 0
    infinite: bool = False
    unit: str = ""

    def check(self, name: str, value: Any) -> None:
        """Raise SettingError where `value` of the setting `name` is outside the limits."""
        if self.filled:
            _check_listed(name, value)
        if self.length and len(value) != self.length:
            raise SettingError(f"{name}: expected {self.length} values, found {len(value)}")
        if self.keys:
            one_of(name, list(value), self.keys)
        for item in _items(value):
            self._check_item(name, item)

    def _check_item(self, name: str, item: Any) -> None:
        if self.choices:
            one_of(name, item, self.choices)
            return
        inside = all(keeps(item, limit) for _, _, limit, keeps in self._bounds)
        if not inside and item != self.off:
            raise SettingError(f"{name}: expected {self._words}, found {short(item)}")
        if isinstance(item, float) and not (math.isfinite(item) or self._infinite(item)):
            raise SettingError(f"{name}: expected a finite number, found {item}")
        if isinstance(item, int) and abs(item) > LARGEST:
            raise SettingError(f"{name}: expected a whole number of 64 bits, found {short(item)}")

    def _infinite(self, item: float) -> bool:
        return self.infinite and math.isinf(item)

    @property
    def _words(self) -> str:
        """The bounds as an error message says them: 'a value above zero', '0, or a value of at
        least 6e-08'."""
        words = " and ".join(f"{word} {limit:g}" for word, _, limit, _ in self._bounds).replace(
            "above 0", "above zero"
        )
        if self.above is not None and self.below is not None:
            words = f"between {self.above:g} and {self.below:g}"
        return ("" if self.off is None else f"{self.off:g}, or ") + f"a value {words}"

    @property
    def _bounds(self) -> list[tuple[str, str, float, Callable[[Any, Any], bool]]]:
        sides = (
            ("above", ">", self.above, operator.gt),
            ("of at least", ">=", self.at_least, operator.ge),
            ("below", "<", self.below, operator.lt),
            ("of at most", "<=", self.at_most, operator.le),
        )
        return [
            (word, sign, limit, keeps) for word, sign, limit, keeps in sides if limit is not None
        ]

    def __str__(self) -> str:
        """As `hess-run list NAME` prints it: 'one of relu, tanh', '> 0 and < 1', '>= 1 steps'."""
        texts = [f"keys {', '.join(self.keys)}"] if self.keys else []
        if self.length:
            texts += [f"{self.length} values"]
        if self.choices:
            texts += [f"one of {', '.join(map(str, self.choices))}"]
        bounds = " and ".join(f"{sign} {limit:g}" for _, sign, limit, _ in self._bounds)
        off = "" if self.off is None else f"{self.off:g} or "
        if bounds or self.unit:
            texts += [f"{off}{bounds} {self.unit}".strip()]
        return "; ".join(texts)


def _check_listed(name: str, values: Sequence[Any]) -> None:
    """Refuse an empty list, and a value that is in it twice."""
    if len(values) == 0:
        raise SettingError(f"{name}: expected at least one value, found an empty list")
    for i, item in enumerate(values):
        if item in values[:i]:
            raise SettingError(f"{name}: expected each value once, found {item} twice")


ANY_NUMBER = Limits()
"""Of a field that declares none: finite numbers."""


def whole_number(name: str, text: str) -> int:
    """A text of digits as a number; Python itself also takes ' 42 ', '+42' and '4_2'. Raises
    SettingError."""
    if not DIGITS.fullmatch(text):
        raise SettingError(f"{name}: expected a whole number, found {short(repr(text))}")
    return int(text)


DIGITS = re.compile(r"-?(0|[1-9][0-9]{0,17})")
"""A whole number as it is written in one way only."""


def typed_path(name: str, text: str) -> Path:
    """A path as a user writes it: ~ is the home folder, also where no shell has replaced it. Raises
    SettingError."""
    if not text.strip():
        raise SettingError(f"{name}: expected a path, found nothing")
    path = os.path.expanduser(text)
    if path.startswith("~"):
        raise SettingError(f"{name}: expected a home folder, found none for {short(text)}")
    return Path(path)


def _items(value: Any) -> Iterator[Any]:
    """The numbers and texts in a value, however deep in lists and mappings."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _items(item)
    else:
        yield value


def check(settings: Any, name: str = "experiment") -> None:
    """Raise SettingError for the first field outside its limits, of the settings and of the groups
    among them."""
    for f in fields(settings):
        value = getattr(settings, f.name)
        if f.name in GROUPS and is_dataclass(value):
            check(value, f.name)
        else:
            f.metadata.get("limits", ANY_NUMBER).check(f"{name}.{f.name}".lstrip("."), value)


def one_of(name: str, value: Any, choices: Iterable[Any]) -> None:
    """Refuse values outside `choices`, offering the nearest; `value` may be a sequence."""
    known = list(choices)
    for item in value if isinstance(value, list | tuple) else (value,):
        if item not in known:
            names = [str(one) for one in known]
            hint = did_you_mean(str(item), names)
            raise SettingError(
                f"{name}: expected one of {', '.join(names)}, found {short(item)}{hint}"
            )


def setting(default: Any = MISSING, **limits: Any) -> Any:
    """Field that is part of a cell's identity, with its `Limits`. Without a default the YAML file
    must give it. figures: figures and tables of the paper that are drawn with it, by their names
    there; of: the grid field that must hold this value for them; help: what it means, in one line.
    This and the other kinds of fields take them next to the limits.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Descent:
    ...     steps: int = setting(50, above=0, unit="steps", help="of gradient descent")
    >>> check(Descent(steps=0), "training")
    Traceback (most recent call last):
        ...
    runner.contract.schema.SettingError: training.steps: expected a value above zero, found 0
    """
    return _field(default, {}, limits)


def grid(default: Any = MISSING, **limits: Any) -> Any:
    """Field of an experiment that lists values of a cell parameter.

    A grid field says which cells there are, not what a cell means, so it stays out of the cell's
    identity. It has the name of the cell parameter (singular), needs at least one value, and a
    single value counts as a list of one.
    """
    if default is not MISSING:
        default = list(default)
    return _field(default, {"grid": True}, {"filled": True, **limits})


def report_only(default: Any = MISSING, **limits: Any) -> Any:
    """Field that changes figures or claims but no measured number; it stays out of the cell's
    identity."""
    return _field(default, {"report": True}, limits)


def free(default: Any = MISSING, **limits: Any) -> Any:
    """Field that may differ from the paper's protocol without making a run incomparable with its
    numbers.

    It changes tables, and so the identity of cells: the number of random subsets next to the
    paper's own, the fineness of a drawing, a number of repetitions. Without a default the YAML file
    must give it.
    """
    return _field(default, {"free": True}, limits)


def since(default: Any, *, free: bool = False, **limits: Any) -> Any:
    """Field added to a settings class that already has stored cells.

    While it holds its default it stays out of the identity, so that every cell measured before the
    field existed keeps its id; any other value enters the identity like that of an ordinary field.
    The default must therefore mean what the code did before. free: it may also differ from the
    paper's protocol, as fields made with `free()`.
    """
    return _field(default, {"since": default} | ({"free": True} if free else {}), limits)


def kind(name: str, *, stored: str = "", choices: Sequence[str] = ()) -> Any:
    """Field `kind` of a group's settings: the name of its YAML file, part of every cell's identity.

    stored: the name under which cells were stored before the kind was renamed. Identities are still
    made with it, so that renaming a file loses no result. choices: all kinds of a class that serves
    several files.
    """
    return _field(name, {"stored": {name: stored or name}}, {"choices": choices or (name,)})


def _field(default: Any, marks: Mapping[str, Any], limits: dict[str, Any]) -> Any:
    metadata = dict(marks)
    for mark in ("help", "figures", "of"):
        if mark in limits:
            metadata[mark] = limits.pop(mark)
    if limits:
        metadata["limits"] = Limits(**limits)
    if isinstance(default, list | dict | set):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def identifying(value: Any) -> Any:
    """The part of settings that changes numbers.

    All fields but the grid, the report-only ones, and those made with `since()` that hold their
    default; and the class attribute `retired`: settings of a part that was removed, so that stored
    cells of the other parts keep their ids.
    """
    if is_dataclass(value) and not isinstance(value, type):
        found = {
            f.name: identifying(_identifying(f, value))
            for f in fields(value)
            if _identifies(f, value)
        }
        return found | getattr(value, "retired", {})
    if isinstance(value, list | tuple):
        return [identifying(item) for item in value]
    return value


def _identifies(f: Field[Any], owner: Any) -> bool:
    """Whether a field's value is part of an identity."""
    if f.metadata.get("grid") or f.metadata.get("report"):
        return False
    return "since" not in f.metadata or getattr(owner, f.name) != f.metadata["since"]


def _identifying(f: Field[Any], owner: Any) -> Any:
    """A field's value as identities know it: a renamed kind keeps its earlier name."""
    value = getattr(owner, f.name)
    if "stored" in f.metadata:
        return f.metadata["stored"].get(value, value)
    return value


def figure_settings(settings: Any) -> dict[str, dict[str, Any]]:
    """Figure or table of the paper -> the fields that it is drawn with, and their values; of a grid
    the one that it needs.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Portrait:
    ...     width: int = setting(3, above=0, of="hidden", figures=("Fig. 3", "Fig. 8"))
    >>> figure_settings(Portrait())["Fig. 8"]
    {'hidden': [3], 'width': 3}
    """
    found: dict[str, dict[str, Any]] = {}
    for about in fields(settings):
        value = getattr(settings, about.name)
        needed = {about.name: value}
        if "of" in about.metadata:
            needed = {about.metadata["of"]: [value], **needed}
        for place in about.metadata.get("figures", ()):
            found.setdefault(place, {}).update(needed)
    return found


def imported(text: str, where: str) -> Any:
    """The object that 'module:name' names. Raises SettingError, which begins with `where`."""
    module, _, name = text.partition(":")
    if not (module and name):
        raise SettingError(f"{where}: expected 'module:name', found {short(repr(text))}")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SettingError(f"{where}: {text} cannot be loaded: {error}") from error
