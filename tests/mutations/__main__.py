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
from tests.mutations.engine import joins_text, replaced, text_of

ROOMS = ("store", "stats", "run", "report", "contract", "data")
COMMANDS = "tests/run/test_"
NOT_COPIED = ("outputs/", "docs/")
SWAPPED: list[tuple[type, type]] = [
    (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn), (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.And, ast.Or),
]  # fmt: skip
OPERATORS = dict(SWAPPED) | {other: one for one, other in SWAPPED}
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}


def mutants(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Every (node, changed node) of a module."""
    keywords = [node for node in ast.walk(tree) if isinstance(node, ast.keyword)]
    frozen = [node.value for node in keywords if node.arg in ("frozen", "slots")]
    for node in ast.walk(tree):
        if node in frozen:  # no program that works writes to a frozen value
            continue
        changed: ast.AST = copy.copy(node)
        match node:
            case ast.Compare(ops=[op]) if type(op) in OPERATORS:
                changed.ops = [OPERATORS[type(op)]()]
            case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in OPERATORS and not joins_text(
                node
            ):
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
            case _:
                continue
        if ast.dump(node) != ast.dump(changed):
            yield node, changed


def tests_of(file: str, most: int) -> list[str]:
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
        text, relative = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
        imported = bool(imports.search(text))
        near = relative.startswith((f"tests/{room}/", COMMANDS)) or relative.count("/") == 1
        if not imported and not near:
            continue
        used = sum(bool(re.search(rf"\b{word}\b", text)) for word in names)
        own = relative == f"tests/{room}/test_{name}.py"
        far = relative.startswith(COMMANDS) and room != "run" and not imported
        ranked.append((far, -(1000 * own + 100 * imported + used), relative))
    return [relative for *_, relative in sorted(ranked)][:most]


def draw(count: int, seed: int, places: list[str]) -> list[tuple[str, int]]:
    """(file, index of a mutant) of a random sample."""
    pool = []
    for room in ROOMS:
        for path in sorted((ROOT / "runner" / room).rglob("*.py")):
            file = path.relative_to(ROOT).as_posix()
            nodes = [node for node, _ in mutants(ast.parse(path.read_text(encoding="utf-8")))]
            for i, node in enumerate(nodes):
                if not places or file in places or f"{file}:{node.lineno}" in places:
                    pool.append((file, i))
    return random.Random(seed).sample(pool, min(count, len(pool)))


def project(folder: Path) -> None:
    """A copy of the tracked files that tests need; published results are linked."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    for file in listed:
        if file and not file.startswith(NOT_COPIED) and (ROOT / file).is_file():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, folder / file)
    for name in ("outputs", "docs"):
        (folder / name).symlink_to(ROOT / name)


def tested(folder: Path, file: str, index: int, limit: float, most: int) -> tuple[str, str]:
    """("caught", "survived" or "time limit", what was changed)."""
    source = (ROOT / file).read_text(encoding="utf-8")
    tree = ast.parse(source)
    old, new = list(mutants(tree))[index]
    change = f"{file}:{old.lineno}: {_line(old)} -> {_line(new)}"  # type: ignore[attr-defined]
    changed = ast.unparse(replaced(tree, old, new))
    files = tests_of(file, len(list((ROOT / "tests").rglob("test_*.py"))))
    (folder / file).write_text(changed, encoding="utf-8")
    try:
        outcome = noticed(folder, files[:most], limit)
        if outcome == "survived" and files[most:]:
            outcome = noticed(folder, files[most:], 4 * limit)
    finally:
        (folder / file).write_text(source, encoding="utf-8")
    return outcome, change


def noticed(folder: Path, files: list[str], limit: float) -> str:
    """ "caught", "survived" or "time limit": what the test files say of the project in a folder."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    pytest += ["-m", "not slow"]
    limited = ["bash", "-c", f'ulimit -t {limit:.0f}; exec "$@"', "bash"]  # processor time
    environment = os.environ | {"PYTHONPATH": str(folder)}
    try:
        ended = subprocess.run(
            [*limited, *pytest, *files],
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=5 * limit,
        )
    except subprocess.TimeoutExpired:
        return "time limit"
    outcomes = {0: "survived", -signal.SIGXCPU: "time limit", -signal.SIGKILL: "time limit"}
    return outcomes.get(ended.returncode, "caught")


def _line(node: ast.AST) -> str:
    """A node in one short line; of a block its condition alone."""
    shown = node.test if isinstance(node, ast.If) else node
    return text_of(shown).split("\n")[0][:80]


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

    def outcome(place: tuple[str, int]) -> tuple[str, str]:
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
            word, change = ended.result()
            counts[word] += 1
            print(f"{word}: {change}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
