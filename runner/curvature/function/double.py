"""A float64 copy of a function: no operation inside it runs in lower precision, or it is seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from runner.curvature.function.context import steps_behind

_DTYPES = [d for d in vars(torch).values() if isinstance(d, torch.dtype)]
_WIDE = {d: torch.float64 for d in _DTYPES if d.is_floating_point and d != torch.float64}
_WIDE |= {d: torch.complex128 for d in _DTYPES if d.is_complex and d != torch.complex128}
"""What stands in for each dtype of lower precision."""
_FULL = (torch.float64, torch.complex128)
_ATTRIBUTE = "__get__"
"""The name of what reads an attribute of a tensor, which has that tensor's precision."""
_MAPPED = (Tensor, torch.dtype, tuple, list, dict)
"""What arguments may be, or hold, that is given in another precision."""
_CASTS: dict[Any, Any] = dict.fromkeys((Tensor.float, Tensor.half, Tensor.bfloat16), Tensor.double)
for _name in ("cfloat", "chalf"):  # which torch does not declare
    _CASTS[getattr(Tensor, _name)] = getattr(Tensor, "cdouble")  # noqa: B009
_BYTES: tuple[Any, ...] = (Tensor.view, torch.frombuffer, torch.from_file)
"""These read the bytes of numbers as another dtype."""
_LEGACY = ("FloatTensor", "HalfTensor", "BFloat16Tensor")
_NUMPY: tuple[Any, ...] = (Tensor.numpy, Tensor.__array__)
_SPECIAL = frozenset((*_CASTS, *_BYTES, *_NUMPY, Tensor.type))
"""Operations that are more than their arguments and results say."""


def widen(value: Any) -> Any:
    """A tensor of real or complex numbers in float64 or complex128; anything else itself."""
    if isinstance(value, Tensor) and value.is_complex():
        return value.to(torch.complex128)
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.double()
    return value


def leaves(value: Any) -> Iterator[Any]:
    """What lists, tuples and dicts of arguments hold."""
    if isinstance(value, tuple | list):
        for part in value:
            yield from leaves(part)
    elif isinstance(value, dict):
        yield from leaves(list(value.values()))
    else:
        yield value


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    if type(value) in (tuple, list):
        return type(value)(_mapped(function, part) for part in value)
    if type(value) is dict:
        return {key: _mapped(function, part) for key, part in value.items()}
    return function(value)


def _is_full(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in _FULL


def _is_low(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in _WIDE


def _is_untouched(value: Any) -> bool:
    """Whether an argument stays as it is, whatever the others are."""
    if isinstance(value, Tensor):
        return value.dtype not in _WIDE
    return not isinstance(value, _MAPPED)


def _low(found: Any) -> Iterator[Tensor]:
    """The tensors of lower precision in a result."""
    if isinstance(found, _MAPPED):
        yield from filter(_is_low, leaves(found))


@dataclass
class Record:
    """What was seen in a float64 copy. narrowed: names of operations that take float64 and give
    less; changed: whether anything was given in float64 that would have had less. whole: whether
    neither was seen in a value, a gradient and a product: the same steps are in float64 then
    without being looked at."""

    narrowed: set[str] = field(default_factory=set)
    changed: bool = False
    whole: bool = False

    def clear(self) -> None:
        """Forgets it."""
        self.narrowed.clear()
        self.changed = False
        self.whole = False

    def finish(self) -> None:
        """To be called when a value, a gradient and a product were seen since it was cleared."""
        self.whole = not (self.narrowed or self.changed)


class FloatCopy(TorchFunctionMode):
    """Every cast to lower precision gives float64, and so does every `dtype=` of lower precision;
    tensors of lower precision that meet float64 ones (of closures, which no replacement reaches)
    are taken for float64."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        named = kwargs or {}
        if func.__name__ == _ATTRIBUTE:
            return func(*args)
        if func not in _SPECIAL and all(map(_is_untouched, (*args, *named.values()))):
            found = func(*args, **named)
            self._see(func, found, any(map(_is_full, (*args, *named.values()))))
            return found
        if func in _BYTES:
            return func(*args, **named)
        if func is Tensor.type and any(word in str(args[1:]) for word in _LEGACY):
            self.record.changed = True
            return args[0].double()
        full = any(map(_is_full, leaves((args, named))))
        if full and func in _NUMPY:
            self.record.narrowed.add("numpy")
            return func(*args, **named)
        first, rest = args[:1], args[1:]
        if not func.__name__.endswith("_"):  # what is written to stays itself
            first, rest = (), args
        out = named.get("out")
        rest, named = _mapped(self._widened if full else self._full, (rest, named))
        if out is not None:
            named["out"] = out
        if func in _CASTS:
            self.record.changed = True
            func = _CASTS[func]
        found = func(*first, *rest, **named)
        self._see(func, found, full)
        return found

    def _see(self, func: Any, found: Any, full: bool) -> None:
        """Keeps the name of an operation that takes float64 and gives less."""
        if full and any(True for _ in _low(found)):
            self.record.narrowed.add(func.__name__)

    def _full(self, value: Any) -> Any:
        """A dtype of full precision."""
        if isinstance(value, torch.dtype) and value in _WIDE:
            self.record.changed = True
            return _WIDE[value]
        return value

    def _widened(self, value: Any) -> Any:
        """A dtype or tensor of full precision."""
        if _is_low(value):
            self.record.changed = True
            return widen(value)
        return self._full(value)


class LowestPrecision(TorchFunctionMode):
    """eps: the largest rounding among the results of operations, at least the one given."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if func.__name__ == _ATTRIBUTE:
            return found
        for t in _low(found):
            self.eps = max(self.eps, torch.finfo(t.dtype).eps)
        return found


def narrowing(tensors: Iterable[Tensor]) -> Iterator[str]:
    """Names of the steps behind these tensors that take float64 and give less: of scripted code,
    which no mode reaches."""
    for step in steps_behind(tensors):
        if any(given.dtype in _WIDE for given in getattr(step, "_input_metadata", ())):
            for before, place in step.next_functions:
                if before is not None and before._input_metadata[place].dtype in _FULL:
                    yield step.name().rpartition("::")[2]


@contextmanager
def double_precision(record: Record) -> Iterator[None]:
    """float64 is the default dtype, and what runs inside is a float64 copy."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with nullcontext() if record.whole else FloatCopy(record):
            yield
    finally:
        torch.set_default_dtype(before)
