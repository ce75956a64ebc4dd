"""Who may import whom: the rooms of docs/architecture.md, and no cycles; late and type-only imports
count."""

import ast
import re
import sys
from collections import defaultdict
from functools import cache
from itertools import product

from tests import ROOT
from tests.sources import files, nodes, relative

HEAVY = {"pandas", "matplotlib"}

ALLOWED = {
    "contract": "",
    "files": "",
    "curvature": "",
    "closed_form": "curvature",
    "kinds": "contract curvature models",
    "models": "curvature contract kinds",
    "data": "curvature contract files kinds",
    "training": "closed_form curvature contract models data kinds",
    "stats": "contract",
    "store": "contract files",
    "report": "contract files curvature models data training stats store",
    "run": "contract files curvature models data training kinds stats store report results",
    "results": "contract run store",
    "diagnose": "contract files curvature models data training stats store report run",
    "cli": "contract run store report data stats diagnose",
}
"""Room of runner/ -> the other rooms it may use."""

THIRD_PARTY = {
    "": set(),
    "curvature": {"torch"},
    "curvature/basics": {"torch", "numpy", "scipy", "tqdm"},
    "curvature/spectra": {"torch", "scipy"},
    "curvature/basics/curvlinops": {"torch", "curvlinops"},
    "curvature/basics/plots": {"torch", "pandas", "matplotlib"},
}
"""Part of the engine -> packages it may use; the longest matching part decides."""

HYDRA = {"run/config/files.py", "run/config/compose.py", "run/config/overrides.py", "run/launch.py"}
"""The only files that know Hydra and OmegaConf."""

NO_TABLES_OR_FIGURES = ("contract", "curvature", "models", "data", "training", "kinds")
"""Rooms below stats and report: neither pandas nor matplotlib."""

LATE = "curvature/basics/plots.py"
"""The exception: `.to_frame()` and `.plot()` of results in a notebook. It imports them inside its
functions."""


@cache
def imports(path):
    """(module, only for types) of every import statement of a file, wherever it stands."""
    guards = [n for n in nodes(path) if isinstance(n, ast.If) and isinstance(n.test, ast.Name)]
    typed = {id(child) for n in guards if n.test.id == "TYPE_CHECKING" for child in ast.walk(n)}
    found = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in typed) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found += [(f"{node.module}.{alias.name}", id(node) in typed) for alias in node.names]
    return found


def room(module):
    """contract, curvature, … of a module or path below runner."""
    return module.replace("/", ".").removeprefix("runner.").split(".")[0]


def test_rooms_import_only_what_they_may():
    rooms = {p.name for p in (ROOT / "runner").iterdir() if p.is_dir() and list(p.glob("*.py"))}
    assert rooms <= set(ALLOWED), "name a new room in ALLOWED"
    wrong = []
    for path in files("runner"):
        here, inside = (
            room(relative(path).removesuffix(".py")),
            relative(path).removeprefix("runner/"),
        )
        packages = THIRD_PARTY[
            max((r for r in THIRD_PARTY if inside.startswith(r)), key=len, default="")
        ]
        for module, only_types in imports(path):
            top = module.split(".")[0]
            heavy = (
                top in HEAVY and not only_types
            )  # annotations of `.to_frame()` and `.plot()` may name them
            may = {here, "__version__", *ALLOWED.get(here, room(module)).split()}
            known = packages | {"runner", *sys.stdlib_module_names} | (set() if heavy else HEAVY)
            rules = {
                "runner must not know experiments": top == "experiments",
                f"{here} must not import this room": top == "runner" and room(module) not in may,
                f"only {', '.join(sorted(HYDRA))} know Hydra": top in ("hydra", "omegaconf")
                and inside not in HYDRA,
                f"{here} makes no tables or figures": heavy
                and here in NO_TABLES_OR_FIGURES
                and inside != LATE,
                "the engine needs torch alone": here == "curvature" and top not in known,
            }
            wrong += [
                f"{relative(path)}: {module}: {rule}" for rule, broken in rules.items() if broken
            ]
    assert not wrong, "\n".join(wrong)


FLOORS = (
    ("collect.py", "departures.py"),
    ("answers",),
    ("figures",),
    ("output",),
    ("update.py", "fingerprint.py"),
)
"""Of runner/report, from the ground up: no module imports one above it."""


def floor(path):
    """The number of the floor that a file or module of runner/report is on."""
    inside = re.sub(r"^runner[./]report[./]", "", path).replace(".py", "").replace(".", "/")
    name = inside.split("/")[0]
    return next(n for n, names in enumerate(FLOORS) if {name, f"{name}.py"} & {*names})


def test_a_report_has_floors_and_no_module_imports_from_above():
    wrong = []
    for path in files("runner/report"):
        if relative(path) == "runner/report/__init__.py":
            continue
        for module, _ in imports(path):
            if module.startswith("runner.report.") and floor(module) > floor(relative(path)):
                wrong.append(f"{relative(path)}: {module}")
    assert not wrong, "\n".join(wrong)


ENGINE = (
    "basics",
    "function",
    "products",
    "identities",
    "operators",
    "spectra",
    "pairs",
    "graphs",
    "uses",
)
"""The packages of the engine, from the ground up."""


def test_packages_of_the_engine_import_only_what_is_below():
    packages = {p.parent.name for p in (ROOT / "runner" / "curvature").glob("*/__init__.py")}
    assert packages == {*ENGINE}
    wrong = []
    for place, package in enumerate(ENGINE):
        for path in files(f"runner/curvature/{package}"):
            for module, _ in imports(path):
                other = module.removeprefix("runner.curvature.").split(".")[0]
                if module.startswith("runner.curvature") and other not in ENGINE[: place + 1]:
                    wrong.append(f"{relative(path)}: {module}")
    assert not wrong, "\n".join(wrong)


def test_no_two_classes_of_the_engine_have_one_name():
    names = defaultdict(list)
    for path in files("runner/curvature"):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                names[node.name].append(relative(path))
    assert not {name: paths for name, paths in names.items() if len(paths) > 1}


def test_measuring_imports_neither_tables_nor_figures():
    top_level = [
        n
        for n in nodes(ROOT / "runner" / LATE)[0].body
        if isinstance(n, ast.Import | ast.ImportFrom)
    ]
    assert not [ast.unparse(n) for n in top_level if re.search("|".join(HEAVY), ast.unparse(n))]


def test_figures_come_from_the_report_alone():
    """pyplot keeps every figure that it makes, and asks for a screen."""
    assert not importers("matplotlib.pyplot")


def importers(package):
    """Files of the product that import a package."""
    paths = files("runner", "experiments")
    return {p for p in paths for module, _ in imports(p) if module.startswith(package)}


def module_name(path):
    return relative(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_no_import_cycles_late_and_type_only_imports_included():
    paths = {module_name(p): p for p in files("runner", "experiments")}
    graph = defaultdict(set)
    for name, path in paths.items():
        for module, _ in imports(path):
            target = module if module in paths else module.rpartition(".")[0]
            if target in paths and target != name:
                graph[name].add(target)
    state = {}
    cycles = []

    def visit(name, trail):
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
    assert not {p for p in importers(own) if not module_name(p).startswith(own)}


def test_no_paper_imports_another():
    """A package of experiments/ imports the runner and the modules next to the packages, no other
    package."""
    packages = {p.name for p in (ROOT / "experiments").iterdir() if (p / "__init__.py").is_file()}
    wrong = []
    for path in files(*(f"experiments/{name}" for name in sorted(packages - {"paper_audit"}))):
        own = path.relative_to(ROOT / "experiments").parts[0]
        for module, _ in imports(path):
            top, _, rest = module.partition(".")
            if top == "experiments" and rest.split(".")[0] in packages - {own}:
                wrong.append(f"{relative(path)}: {module}")
    assert not wrong, "\n".join(wrong)


def test_an_experiment_has_no_class_in_its_package_file():
    """The dataclass of an experiment is in settings.py, which names the rest."""
    packages = [p for p in files("experiments") if p.name == "__init__.py"]
    statements = [(p, node) for p in packages for node in nodes(p)[0].body]
    assert not [p for p, node in statements if isinstance(node, ast.ClassDef)]
    targets = [
        re.search(r"_target_: (\S+)", p.read_text())
        for p in (ROOT / "conf" / "experiment").glob("*.yaml")
    ]
    assert {t[1].split(".")[-2] for t in targets if t} == {"settings"}


FORMS = (ast.IfExp, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp))


def nested_forms(nodes):
    """Lines of conditional expressions and comprehensions that contain another of their kind."""
    lines = []
    for outer, kind in product(nodes, FORMS):
        if isinstance(outer, kind) and sum(isinstance(n, kind) for n in ast.walk(outer)) > 1:
            lines.append(outer.lineno)
    return lines


def test_no_nested_conditional_expressions_and_comprehensions():
    """A value gets a name on a line of its own; a loop is a loop where a comprehension would
    nest."""
    nested = []
    for path in files("runner", "experiments", "docs", "tests"):
        nested += [f"{relative(path)}:{line}" for line in nested_forms(nodes(path))]
    assert not nested, "\n".join(nested)
