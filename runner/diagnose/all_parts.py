"""Every part of a diagnosis by name, in the order in which they are measured."""

from __future__ import annotations

from collections.abc import Sequence

from runner.contract import one_of
from runner.diagnose import parts, pricing, spectrum
from runner.diagnose.parts import Part

PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        Part("network", pricing.price_of_network, parts.measure_network),
        Part("certificate", pricing.price_of_certificate, parts.measure_certificate),
        Part("layers", pricing.price_of_layers, parts.measure_layers),
        Part("groups", pricing.price_of("groups"), spectrum.measure_groups),
        Part("eigenvalues", pricing.price_of("eigenvalues"), spectrum.measure_eigenvalues),
        Part("density", pricing.price_of("density"), spectrum.measure_density),
        Part("trace", pricing.price_of("trace"), spectrum.measure_trace),
        Part("noise", pricing.price_of_noise, parts.measure_noise, lambda problem: problem.snapshot.loader),
    )
}


def chosen(names: Sequence[str]) -> list[Part]:
    """The parts of these names; all of them for none. Raises SettingError for an unknown one."""
    one_of("parts", list(names), PARTS)
    return [part for name, part in PARTS.items() if not names or name in names]
