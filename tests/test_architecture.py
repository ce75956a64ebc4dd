"""Who may import whom: the rooms of docs/architecture.md, and no cycles; late and type-only imports count."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = {"pandas", "matplotlib"}

ALLOWED = {
    "contract": set(),
    "curvature": set(),
    "kinds": {"contract", "curvature", "models"},
    "models": {"curvature", "contract", "kinds"},
    "data": {"curvature", "contract", "kinds"},
    "training": {"curvature", "contract", "models", "data", "kinds"},
    "stats": {"contract"},
    "store": {"contract"},
    "report": {"contract", "curvature", "models", "data", "training", "stats", "store"},
    "run": {*("contract", "curvature", "models", "data", "training", "kinds", "stats", "store", "report"), "results"},
    "results": {"contract", "run", "store"},
    "diagnose": {"contract", "curvature", "models", "data", "training", "stats", "store", "report", "run"},
    "cli": {"contract", "run", "store", "report", "data", "stats", "diagnose"},
}
"""Room of runner/ -> the other rooms it may use."""

THIRD_PARTY = {
    "contract": set(),
    "curvature": {"torch"},
    "curvature/matrix_free": {"torch", "numpy", "scipy"},
    "curvature/spectra": {"torch", "numpy", "scipy"},
    "curvature/spectra/for_curvlinops": {"torch", "curvlinops"},
    "curvature/plots": {"torch", "pandas", "matplotlib"},
    "curvature/storage": {"torch", "numpy"},
}
"""Room -> packages it may use, where that is restricted; the longest matching room decides."""

HYDRA = {"runner/run/config/compose.py", "runner/run/config/overrides.py", "runner/run/command.py"}
"""The only files that know Hydra and OmegaConf."""

NO_TABLES_OR_FIGURES = ("contract", "curvature", "models", "data", "training", "kinds")
"""Rooms below stats and report: neither pandas nor matplotlib."""

LATE = "runner/curvature/plots.py"
"""The exception: `.to_frame()` and `.plot()` of results in a notebook. It imports them inside its functions."""


def imports(path: Path) -> list[tuple[str, bool]]:
    """(module, only for types) of every import statement of a file, wherever it stands."""
    tree = ast.parse(path.read_text())
    typed = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in typed) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found += [(f"{node.module}.{alias.name}", id(node) in typed) for alias in node.names]
    return found


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room(module: str) -> str:
    """contract, curvature, … of a module or path below runner."""
    return module.replace("/", ".").removeprefix("runner.").split(".")[0]


def test_every_room_is_named():
    rooms = {p.name for p in (ROOT / "runner").iterdir() if p.is_dir() and list(p.glob("*.py"))}
    assert rooms <= set(ALLOWED), "name a new room in ALLOWED"


@pytest.mark.parametrize("path", files("runner"), ids=relative)
def test_rooms_import_only_what_they_may(path):
    here = room(relative(path).removesuffix(".py"))
    for module, only_types in imports(path):
        top = module.split(".")[0]
        assert top != "experiments", f"runner must not know experiments: {module}"
        if top == "runner" and here in ALLOWED:
            target = room(module)
            assert target in ALLOWED[here] | {here, "__version__"}, f"{here} must not import {target} ({module})"
        if top in ("hydra", "omegaconf"):
            assert relative(path) in HYDRA, f"only {', '.join(sorted(HYDRA))} know Hydra"
        if top in HEAVY and not only_types:
            assert here not in NO_TABLES_OR_FIGURES or relative(path) == LATE, f"{here} must not import {top}"


def test_measuring_imports_neither_tables_nor_figures():
    top_level = [n for n in ast.parse((ROOT / LATE).read_text()).body if isinstance(n, ast.Import | ast.ImportFrom)]
    assert not [ast.unparse(n) for n in top_level if re.search("|".join(HEAVY), ast.unparse(n))]


def test_figures_come_from_the_report_alone():
    """pyplot keeps every figure that it makes, and asks for a screen."""
    of = {relative(p): [m for m, _ in imports(p)] for folder in ("runner", "experiments") for p in files(folder)}
    assert not [path for path, modules in of.items() if any(m.startswith("matplotlib.pyplot") for m in modules)]


@pytest.mark.parametrize("path", files("runner/curvature"), ids=relative)
def test_the_engine_needs_torch_alone(path):
    inside = relative(path).removeprefix("runner/")
    allowed = THIRD_PARTY[max((r for r in THIRD_PARTY if inside.startswith(r)), key=len)]
    import sys

    for module, only_types in imports(path):
        top = module.split(".")[0]
        if only_types and top in HEAVY:  # annotations of `.to_frame()` and `.plot()`
            continue
        assert top in allowed | {"runner"} | set(sys.stdlib_module_names), f"{inside} must not import {top}"


def module_name(path: Path) -> str:
    return relative(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_no_import_cycles_late_and_type_only_imports_included():
    paths = {module_name(p): p for folder in ("runner", "experiments") for p in files(folder)}
    graph: dict[str, set[str]] = defaultdict(set)
    for name, path in paths.items():
        for module, _ in imports(path):
            target = module if module in paths else module.rpartition(".")[0]
            if target in paths and target != name:
                graph[name].add(target)
    state: dict[str, int] = {}
    cycles = []

    def visit(name: str, trail: list[str]) -> None:
        state[name] = 1
        for other in sorted(graph[name]):
            if state.get(other) == 1:
                cycles.append([*trail[trail.index(other) :], other])
            elif other not in state:
                visit(other, [*trail, other])
        state[name] = 2

    for name in sorted(paths):
        if name not in state:
            visit(name, [name])
    assert not cycles, "\n".join(" -> ".join(c) for c in cycles)


def test_nothing_imports_the_audit():
    own = "experiments.paper_audit"
    others = [p for folder in ("runner", "experiments") for p in files(folder) if not module_name(p).startswith(own)]
    assert not [relative(p) for p in others if any(m.startswith(own) for m, _ in imports(p))]


def test_an_experiment_has_no_class_in_its_package_file():
    """The dataclass of an experiment is in settings.py, which names the rest."""
    packages = [p for p in files("experiments") if p.name == "__init__.py"]
    assert not [
        relative(p) for p in packages if any(isinstance(n, ast.ClassDef) for n in ast.parse(p.read_text()).body)
    ]
    targets = [re.search(r"_target_: (\S+)", p.read_text()) for p in (ROOT / "conf" / "experiment").glob("*.yaml")]
    assert {t[1].split(".")[-2] for t in targets if t} == {"settings"}
