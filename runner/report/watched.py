"""Which tables of a report a figure was drawn from: asked for while it is drawn, or before and held by what draws it.

What an analysis computes once for several answers (`functools.cached_property`) hides from its later readers the tables
that it was made from; `traced` remembers them. So the tables of a figure are never too few, and may be too many: then
it is drawn once more than it had to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import cached_property
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from runner.contract import Analysis, Experiment

if TYPE_CHECKING:
    import pandas as pd

NAMES = "*"
"""Stands for the list of the tables that there are, which code may go through."""
PLAIN = (str, bytes, int, float, bool, complex, type(None))


class Log:
    """The names of tables that were asked for, there or not, by the stretch of code that asked."""

    def __init__(self) -> None:
        self._open: list[set[str]] = [set()]

    def add(self, names: Iterable[str]) -> None:
        self._open[-1].update(names)

    @contextmanager
    def noting(self) -> Iterator[set[str]]:
        """The names asked for while inside; whoever is noting outside gets them too, at the end."""
        self._open.append(set())
        try:
            yield self._open[-1]
        finally:
            found = self._open.pop()
            self._open[-1] |= found


class Watched(Mapping[str, "pd.DataFrame"]):
    """Tables that say in a log which of them are asked for. prefix: of their names there."""

    def __init__(self, tables: Mapping[str, pd.DataFrame], log: Log, prefix: str = "") -> None:
        self._tables, self._log, self._prefix = dict(tables), log, prefix

    def __getitem__(self, name: str) -> pd.DataFrame:
        self._log.add([self._prefix + name])
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        self._log.add([NAMES])
        return iter(self._tables)

    def __len__(self) -> int:
        self._log.add([NAMES])
        return len(self._tables)

    def silent(self) -> dict[str, pd.DataFrame]:
        """The tables by their names in the log, without an entry there."""
        return {self._prefix + name: table for name, table in self._tables.items()}


def traced(analysis: Analysis, log: Log) -> Analysis:
    """The same analysis, whose cached properties ask for their tables again, in the log, whenever they are read."""
    cls = type(analysis)
    cached = {name: item for base in reversed(cls.__mro__) for name, item in vars(base).items()}
    remembered = {name: _remembering(name, p, log) for name, p in cached.items() if isinstance(p, cached_property)}
    own = type(cls.__name__, (cls,), {"__module__": cls.__module__, "__doc__": cls.__doc__, **remembered})
    copy: Analysis = object.__new__(own)
    copy.__dict__.update(analysis.__dict__)
    return copy


def _remembering(name: str, cached: cached_property[Any], log: Log) -> property:
    behind = f"_tables_behind_{name}"

    def read(self: Analysis) -> Any:
        kept = self.__dict__
        if name not in kept:
            with log.noting() as asked:
                value = cached.func(self)
            kept[behind], kept[name] = frozenset(asked), value
        log.add(kept.get(behind, ()))
        return kept[name]

    return property(read, doc=cached.__doc__)


class Held:
    """What a maker of a figure holds: in its closure, its arguments, or theirs.

    tables: names of tables held whole. alike: of those of whose columns a part is held. values: plain values. opaque:
    whether there is anything else, which may have been made from any table asked for before.
    """

    def __init__(self, maker: Any, tables: Mapping[str, pd.DataFrame]) -> None:
        self.tables: set[str] = set()
        self.alike: set[str] = set()
        self.values: list[str] = []
        self.opaque = False
        self._known = tables
        self._seen: set[int] = set()
        self._look(maker)

    def _look(self, item: Any) -> None:
        if isinstance(item, PLAIN):
            self.values.append(repr(item))
        elif id(item) in self._seen or isinstance(item, Analysis | Experiment | Watched | type):
            pass  # tables are logged when they are asked for, and reports are made from settings anyway
        else:
            self._seen.add(id(item))
            self._look_into(item)

    def _look_into(self, item: Any) -> None:
        if isinstance(item, Mapping):
            self._all([*item.keys(), *item.values()])
        elif isinstance(item, list | tuple):
            self._all(item)
        elif is_dataclass(item):
            self._all(getattr(item, field.name) for field in fields(item))
        elif isinstance(item, MethodType):
            self._all([item.__self__, item.__func__])
        elif isinstance(item, FunctionType):
            self._all([*_closure(item), *(item.__defaults__ or ()), *(item.__kwdefaults__ or {}).values()])
        elif hasattr(item, "func") and hasattr(item, "keywords"):
            self._all([item.func, *item.args, *item.keywords.values()])
        elif whole := {name for name, table in self._known.items() if table is item}:
            self.tables |= whole
        else:
            self.opaque = True
            columns = list(getattr(item, "columns", ()))
            self.alike |= {name for name, t in self._known.items() if columns and columns == list(t.columns)}

    def _all(self, items: Iterable[Any]) -> None:
        for item in items:
            self._look(item)


def _closure(function: FunctionType) -> list[Any]:
    """What a function's closure holds; a name that is not bound yet holds nothing."""
    found = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):
            found.append(cell.cell_contents)
    return found
