"""Mutation testing: random changes of the code of ROOMS, and whether a test notices each.

    python -m tests.mutations [--count 100] [--seed 0] [--limit 120] [--tests 4] [FILE[:LINE] ...]
    python -m tests.mutations --jobs 2             two mutations at a time, each in its own copy

Each mutation changes one comparison, operator, constant, condition or call in a copy of the
project, and runs the test files that belong to the changed module: those named after it, those
that import it, and those of its folder that name it; if none notices, the rest of its folder and
the tests of the commands, which run every module. A mutation is caught when a test fails or runs
into the time limit; slow tests are not asked. FILE restricts the draw to some files or lines. Exit
status 1 if a mutation survives. A survivor is either equivalent (no input tells the two programs
apart) or a missing test.
"""

import argparse
import ast
import copy
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue

from tests import ROOT
from tests.mutations.engine import Mutation, joins_text, mutations
from tests.sources import files, relative

ROOMS = ("store", "stats", "run", "report", "contract", "data")
COMMANDS = "tests/run/test_"
NOT_COPIED = ("outputs/", "docs/")
SWAPPED: list[tuple[type, type]] = [
    (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn), (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.And, ast.Or),
]  # fmt: skip
OPERATORS = dict(SWAPPED) | {other: one for one, other in SWAPPED}
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The change of a node, if there is one."""
    changed: ast.AST = copy.copy(node)
    match node:
        case ast.Compare(ops=[op]) if type(op) in OPERATORS:
            changed.ops = [OPERATORS[type(op)]()]
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in OPERATORS:
            if not joins_text(node):
                changed.op = OPERATORS[type(op)]()
        case ast.UnaryOp(op=ast.Not()):
            changed = node.operand
        case ast.Constant(value=bool()):
            changed.value = not node.value
        case ast.Constant(value=int() | float()):
            changed.value = 0 if node.value else 1
        case ast.Name(id=name, ctx=ast.Load()) if name in FUNCTIONS:
            changed.id = FUNCTIONS[name]
        case ast.If() | ast.IfExp():
            changed.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Expr(value=ast.Call()):
            changed = ast.Pass()
        case ast.Return(value=ast.expr()):
            changed.value = ast.Constant(None)
    yield "", changed


def mutants(file: str) -> list[Mutation]:
    """Every change of a file. No program that works writes to a frozen value."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    keywords = [node for node in ast.walk(tree) if isinstance(node, ast.keyword)]
    frozen = [node.value for node in keywords if node.arg in ("frozen", "slots")]
    nodes = [("", 0, node) for node in ast.walk(tree) if node not in frozen]
    return list(mutations(tree, nodes, changes))


def tests_of(file: str) -> list[str]:
    """Test files of a module: that of its name, then those that import it, then those of its folder
    and of none that use most of its names."""
    room, name = file.split("/")[1], Path(file).stem
    module = file.removesuffix(".py").replace("/", ".")
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    names = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    imports = re.compile(
        rf"{re.escape(module)}\b|from {re.escape(module.rpartition('.')[0])} import .*\b{name}\b"
    )
    ranked = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        text, test = path.read_text(encoding="utf-8"), relative(path)
        imported = bool(imports.search(text))
        near = test.startswith((f"tests/{room}/", COMMANDS)) or test.count("/") == 1
        if not imported and not near:
            continue
        used = sum(bool(re.search(rf"\b{word}\b", text)) for word in names)
        own = test == f"tests/{room}/test_{name}.py"
        far = test.startswith(COMMANDS) and room != "run" and not imported
        ranked.append((far, -(1000 * own + 100 * imported + used), test))
    return [test for *_, test in sorted(ranked)]


def draw(count: int, seed: int, places: list[str]) -> list[tuple[str, Mutation]]:
    """(file, mutation) of a random sample."""
    pool = []
    for room in ROOMS:
        for path in files(f"runner/{room}"):
            file = relative(path)
            for mutation in mutants(file):
                if not places or {file, f"{file}:{mutation.line}"} & set(places):
                    pool.append((file, mutation))
    return random.Random(seed).sample(pool, min(count, len(pool)))


def project(folder: Path) -> None:
    """A copy of the tracked files that tests need; published results are linked."""
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True)
    for file in listed.splitlines():
        if not file.startswith(NOT_COPIED) and (ROOT / file).is_file():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, folder / file)
    for name in ("outputs", "docs"):
        (folder / name).symlink_to(ROOT / name)


def tested(folder: Path, file: str, mutation: Mutation, limit: float, most: int) -> str:
    """ "caught", "survived" or "time limit", and what was changed."""
    source = (folder / file).read_text(encoding="utf-8")
    tests = tests_of(file)
    (folder / file).write_text(ast.unparse(mutation.apply(source)), encoding="utf-8")
    try:
        outcome = noticed(folder, tests[:most], limit)
        if outcome == "survived" and tests[most:]:
            outcome = noticed(folder, tests[most:], 4 * limit)
    finally:
        (folder / file).write_text(source, encoding="utf-8")
    return f"{outcome}: {file}:{mutation.line}: {mutation.change}"


def noticed(folder: Path, files: list[str], limit: float) -> str:
    """ "caught", "survived" or "time limit": what the test files say of the project in a folder."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    pytest += ["-m", "not slow"]
    limited = ["bash", "-c", f'ulimit -t {limit:.0f}; exec "$@"', "bash"]  # processor time
    environment = os.environ | {"PYTHONPATH": str(folder)}
    about = {"cwd": folder, "env": environment, "timeout": 5 * limit}
    try:
        ended = subprocess.run([*limited, *pytest, *files], capture_output=True, **about)
    except subprocess.TimeoutExpired:
        return "time limit"
    outcomes = {0: "survived", -signal.SIGXCPU: "time limit", -signal.SIGKILL: "time limit"}
    return outcomes.get(ended.returncode, "caught")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--limit", type=float, default=120.0, help="processor seconds for the tests of one mutation"
    )
    parser.add_argument("--tests", type=int, default=4, help="test files for one mutation")
    parser.add_argument("--jobs", type=int, default=1, help="mutations at a time")
    parser.add_argument("places", nargs="*", metavar="FILE[:LINE]")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    folders: SimpleQueue[Path] = SimpleQueue()

    def outcome(place: tuple[str, Mutation]) -> str:
        folder = folders.get()
        try:
            return tested(folder, *place, options.limit, options.tests)
        finally:
            folders.put(folder)

    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(options.jobs) as pool:
        for number in range(options.jobs):
            folder = Path(name, str(number))
            project(folder)
            folders.put(folder)
        drawn = draw(options.count, options.seed, options.places)
        for ended in as_completed([pool.submit(outcome, place) for place in drawn]):
            counts[ended.result().partition(":")[0]] += 1
            print(ended.result(), flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
