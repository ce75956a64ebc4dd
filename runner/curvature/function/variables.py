"""The variables of the function that is differentiated: parameters of a module, or perturbations of
layers' outputs."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from runner.curvature.basics.errors import EvaluationError, MeasurementError, some
from runner.curvature.basics.trees import slices_of, tree_flatten, tree_unflatten
from runner.curvature.basics.vectors import Values, norm
from runner.curvature.function.groups import GroupSpec, parameter_groups
from runner.curvature.function.layers import Nodes, Pick, chosen, picked, submodules
from runner.curvature.function.perturbed import Perturbed, placed_by


class Parameters:
    """Parameters of a module, complex ones as pairs of real numbers.

    values: by name, sharing memory with the module's. groups: slices of the flat vector. members:
    names of each group.
    """

    noun = "group"
    calls: Mapping[str, int] = {}
    first_calls: Mapping[str, int] = {}

    def __init__(self, module: nn.Module, groups: GroupSpec | None) -> None:
        found = parameter_groups(module, groups)
        self.groups = found.groups
        self.members = found.members
        known = dict(module.named_parameters())
        self.originals = {name: known[name] for name in found.parameters}
        self.complex = {name for name, p in self.originals.items() if p.is_complex()}
        self.fixed_rows = _padding_rows(module, self.originals)
        self.scales: dict[str, float] = {}

    @property
    def values(self) -> Values:
        found = {name: p.detach() for name, p in self.originals.items()}
        return found | {name: torch.view_as_real(found[name]) for name in self.complex}

    @property
    def parameters(self) -> Values:
        return self.values

    def replaced(self, values: Mapping[str, Tensor]) -> dict[int, Tensor]:
        """What stands in for each parameter, by its identity."""
        found = {id(self.originals[name]): value for name, value in values.items()}
        for name in self.complex:
            found[id(self.originals[name])] = torch.view_as_complex(values[name])
        return found

    @contextmanager
    def attached(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        yield

    def scale(self, steps: Values, values: Values) -> None:
        """Gives steps the root mean square that each parameter had at first (1 where it is zero),
        without the rows whose gradient torch leaves out (`padding_idx`)."""
        for name in values.keys() - self.scales.keys():
            self.scales[name] = norm(values[name]) / max(1, values[name].numel()) ** 0.5 or 1.0
        torch._foreach_mul_([*steps.values()], [self.scales[name] for name in steps])
        for name, rows in self.fixed_rows.items():
            steps[name][rows] = 0


def _padding_rows(module: nn.Module, originals: Mapping[str, Tensor]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    names = {id(p): name for name, p in originals.items()}
    for m in module.modules():
        if not isinstance(m, nn.Embedding | nn.EmbeddingBag) or m.padding_idx is None:
            continue
        if id(m.weight) in names:
            rows.setdefault(names[id(m.weight)], []).append(m.padding_idx)
    return rows


Kind = tuple[tuple[int, ...], torch.dtype, torch.device]
Kinds = dict[str, Kind]
"""Shape, dtype and device of each call's output."""
T = TypeVar("T")


def kind_of(output: Tensor) -> Kind:
    if output.is_nested:
        raise MeasurementError(
            "a layer returns a nested tensor, to which no perturbation of one shape can be added: "
            "pad the sequences to one length"
        )
    return tuple(output.shape), output.dtype, output.device


class Perturbations:
    """e_v, added to the output of layer v for all examples; "v#2" is the second call of v."""

    noun = "layer"
    originals: Mapping[str, Tensor] = {}

    def __init__(self, module: nn.Module, layers: Nodes) -> None:
        self.module = module
        self.picks, self.asked = chosen(module, layers)
        if not self.picks:
            raise MeasurementError("the module has no layer with parameters: name layers=[...]")
        self.calls: Counter[str] = Counter()
        """Of the layers, in the last evaluation."""
        self.first_calls: Counter[str] = Counter()
        """In the first batch."""
        self.places: dict[str, Perturbed] = {}
        self.values: Values = {}
        self.groups: dict[str, slice] = {}
        self.members: dict[str, tuple[str, ...]] = {}

    def record(self, run: Callable[[], object], see: Callable[[Tensor], T]) -> dict[str, T]:
        """What is seen of the outputs of the layers in one call of the network."""
        found: dict[str, T] = {}

        def look(name: str, output: Tensor) -> None:
            found[name] = see(output)

        with self._hooked(look):
            run()
        return found

    def with_slopes(
        self,
        evaluate: Callable[[], Tensor],
        slopes: Callable[[list[Tensor], list[Tensor]], list[Tensor]],
    ) -> Values:
        """Outputs of the layers next to the slopes of a value by them, each scaled to 1."""
        outputs: Values = {}
        shifts: Values = {}

        def shift(name: str, output: Tensor) -> Tensor | None:
            if torch._C._functorch.is_functorch_wrapped_tensor(output):
                return None
            outputs[name] = output.detach().clone()
            shifts[name] = torch.zeros_like(outputs[name]).requires_grad_()
            return output + shifts[name]

        with self._hooked(shift):
            by_output = slopes([evaluate()], [*shifts.values()])
        found = {}
        for name, slope in zip(outputs, by_output, strict=True):
            found[name] = torch.stack([_scaled(outputs[name]), _scaled(slope)], -1)
        return found

    def settle(
        self,
        whole: Kinds,
        examples: int,
        fewer: Callable[[], Iterator[tuple[Kinds, int]]],
        outputs: Callable[[], tuple[Values, int, Values]],
    ) -> None:
        """Shapes of the perturbations, from outputs with all examples and, in turn, with fewer of
        them. outputs: with slopes, of some examples, how many, and of these with the last one
        first."""
        if not whole:
            raise MeasurementError(f"none of the layers {some(self.picks)} is called: name others")
        self.first_calls = Counter(name.partition("#")[0] for name in whole)
        found: dict[str, Perturbed] = {}
        for record, count in fewer():
            for name in whole.keys() - found.keys():
                place = None
                if name in record:
                    place = placed_by(whole[name][0], record[name][0], examples, count)
                if place is not None:
                    found[name] = place
            if len(found) == len(whole):
                break
        if repeated := [name for name, place in found.items() if place.outer]:
            some_outputs, count, rolled = outputs()
            for name in some_outputs.keys() & repeated:
                found[name] = found[name].arranged(some_outputs[name], count, rolled[name])
        for name, (shape, dtype, device) in whole.items():
            place = found.get(name, Perturbed(shape, None))
            self.places[name] = place
            real = (*place.shape, 2) if dtype.is_complex else place.shape
            wide = dtype.to_real() if dtype.is_complex else dtype
            self.values[name] = torch.zeros(real, dtype=wide, device=device)
        self.groups = slices_of({name: e.numel() for name, e in self.values.items()})
        self.members = {name: (name,) for name in self.values}
        self.complex = {name for name, (_, dtype, _) in whole.items() if dtype.is_complex}

    def of_copies(self, copies: int) -> Perturbations:
        """Of so many copies of the batch, one after the other: each has an e of its own, along a
        first dimension."""
        twin = copy.copy(self)
        twin.places = {name: place._replace(copies=copies) for name, place in self.places.items()}
        twin.values = {name: e.new_zeros(copies, *e.shape) for name, e in self.values.items()}
        return twin

    @property
    def uncalled(self) -> list[str]:
        """Layers that are never called, such as a projection that a fused function reads."""
        return [name for name in self.picks if name not in self.values]

    def replaced(self, values: Mapping[str, Tensor]) -> dict[int, Tensor]:
        return {}

    @contextmanager
    def attached(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        def add(name: str, output: Tensor) -> Tensor | None:
            if name not in values:
                return None
            e = values[name]
            if name in self.complex:
                e = torch.view_as_complex(e)
            place = self.places[name]
            added = place.added(e, output)
            if added is None:
                raise EvaluationError(
                    f"layer {name!r} returned {tuple(output.shape)}, and its perturbation has the "
                    f"shape {place.shape}, from the first batch: expected batches of one shape "
                    "except for their numbers of examples (pad them to one length)"
                )
            return added

        with self._hooked(add):
            yield

    @contextmanager
    def _hooked(self, act: Callable[[str, Tensor], Tensor | None]) -> Iterator[None]:
        counts: Counter[str] = Counter()
        self.calls = counts

        def hook(layer: str, pick: Pick) -> Callable[..., Any]:
            def after(_: nn.Module, __: Any, output: Any) -> Any:
                counts[layer] += 1
                name = layer if counts[layer] == 1 else f"{layer}#{counts[layer]}"
                leaves, spec = tree_flatten(output)
                at = _position(leaves, output, pick, layer)
                replaced = act(name, leaves[at])
                if replaced is None:
                    return None
                leaves[at] = replaced
                return tree_unflatten(leaves, spec)

            return after

        known = {name: m for name, m in submodules(self.module).items() if name in self.picks}
        handles = [
            known[name].register_forward_hook(hook(name, pick)) for name, pick in self.picks.items()
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def scale(self, steps: Values, values: Values) -> None:
        """A perturbation has root mean square 1."""


def _scaled(t: Tensor) -> Tensor:
    finite = t.nan_to_num(0.0, 0.0, 0.0)
    largest = finite.abs().max()
    return finite / largest if float(largest) > 0 else finite


def _position(leaves: list[Any], output: Any, pick: Pick, layer: str) -> int:
    if pick is not None:
        return picked(output, pick, layer)
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
            return i
    raise MeasurementError(
        f"layer {layer!r} returns no tensor of real numbers: leave it out, or pick another"
    )
