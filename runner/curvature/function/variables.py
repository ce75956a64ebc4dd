"""The variables of the function that is differentiated: parameters of a module, or perturbations of
layers' outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from runner.curvature.function.errors import MeasurementError, some
from runner.curvature.function.groups import GroupSpec, layout
from runner.curvature.function.layers import Nodes, Pick, chosen, picked, submodules
from runner.curvature.function.trees import slices_of, tree_flatten, tree_unflatten
from runner.curvature.function.vectors import Values, norm


class Parameters:
    """Parameters of a module, complex ones as pairs of real numbers.

    values: by name, sharing memory with the module's. groups: slices of the flat vector. members:
    names of each group.
    """

    noun = "group"

    def __init__(self, module: nn.Module, groups: GroupSpec | None) -> None:
        found = layout(module, groups)
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


class Perturbed(NamedTuple):
    """How e is added to one output: its shape there, the dimension of examples (None: e has the
    shape of the output), and whether that holds several rows of each example."""

    shape: tuple[int, ...]
    dim: int | None
    repeats: bool

    def spread(self, e: Tensor, like: Tensor) -> Tensor:
        """e for every example of the output `like`."""
        if (
            self.dim is None
            or torch._C._functorch.is_functorch_wrapped_tensor(like)
            or e.dim() == 0
        ):
            return e
        if not self.repeats:
            return e.unsqueeze(self.dim)
        counts = [1] * e.dim()
        counts[self.dim] = like.shape[self.dim] // e.shape[self.dim]
        return e.repeat(counts)


Record = dict[str, tuple[tuple[int, ...], torch.dtype, torch.device, bool]]
"""Shape, dtype, device of each call's output, and whether it was seen inside a torch.func
transform."""


class Perturbations:
    """e_v, added to the output of layer v for all examples; "v#2" is the second call of v."""

    noun = "layer"
    originals: Mapping[str, Tensor] = {}

    def __init__(self, module: nn.Module, layers: Nodes) -> None:
        self.module = module
        self.picks, self.asked = chosen(module, layers)
        if not self.picks:
            raise MeasurementError("the module has no layer with parameters: name layers=[...]")
        self.places: dict[str, Perturbed] = {}
        self.values: Values = {}
        self.groups: dict[str, slice] = {}
        self.members: dict[str, tuple[str, ...]] = {}

    def record(self, run: Callable[[], object]) -> Record:
        """The outputs of the layers in one call of the network."""
        found: Record = {}

        def look(name: str, output: Tensor) -> None:
            inside = torch._C._functorch.is_functorch_wrapped_tensor(output)
            found[name] = tuple(output.shape), output.dtype, output.device, inside

        with self._hooked(look):
            run()
        return found

    def settle(
        self, whole: Record, examples: int, fewer: Callable[[], Iterator[tuple[Record, int]]]
    ) -> None:
        """Shapes of the perturbations, from outputs with all examples and, in turn, with fewer of
        them."""
        if not whole:
            raise MeasurementError(f"none of the layers {some(self.picks)} is called: name others")
        open_names = {name for name, (_, _, _, inside) in whole.items() if not inside}
        found: dict[str, Perturbed] = {}
        for record, count in fewer():
            for name in open_names - set(found):
                place = (
                    _place(whole[name][0], record[name][0], examples, count)
                    if name in record
                    else None
                )
                if place is not None:
                    found[name] = place
            if len(found) == len(open_names):
                break
        for name, (shape, dtype, device, _) in whole.items():
            place = found.get(name, Perturbed(shape, None, False))
            self.places[name] = place
            real = (*place.shape, 2) if dtype.is_complex else place.shape
            wide = dtype.to_real() if dtype.is_complex else dtype
            self.values[name] = torch.zeros(real, dtype=wide, device=device)
        self.groups = slices_of({name: e.numel() for name, e in self.values.items()})
        self.members = {name: (name,) for name in self.values}
        self.complex = {name for name, (_, dtype, _, _) in whole.items() if dtype.is_complex}

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
            e = torch.view_as_complex(e) if name in self.complex else e
            return output + self.places[name].spread(e, output).to(output.dtype)

        with self._hooked(add):
            yield

    @contextmanager
    def _hooked(self, act: Callable[[str, Tensor], Tensor | None]) -> Iterator[None]:
        counts: Counter[str] = Counter()

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


def _position(leaves: list[Any], output: Any, pick: Pick, layer: str) -> int:
    if pick is not None:
        return picked(output, pick, layer)
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
            return i
    raise MeasurementError(
        f"layer {layer!r} returns no tensor of real numbers: leave it out, or pick another"
    )


def _place(
    shape: tuple[int, ...], fewer: tuple[int, ...], examples: int, count: int
) -> Perturbed | None:
    """The dimension of examples is the one that shrinks in a run with `count` examples; None where
    none does."""
    if len(fewer) != len(shape):
        return None
    shrunk = [d for d, (whole, less) in enumerate(zip(shape, fewer, strict=True)) if less != whole]
    if len(shrunk) != 1:
        return None
    dim = shrunk[0]
    rows, rest = divmod(shape[dim], examples)
    if (
        rest or rows == 1 or fewer[dim] != rows * count
    ):  # also a layer that sees some rows: e is added to every one
        return Perturbed((*shape[:dim], *shape[dim + 1 :]), dim, False)
    return Perturbed((*shape[:dim], rows, *shape[dim + 1 :]), dim, True)
