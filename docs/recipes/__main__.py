"""Make the pages of the recipes: `python -m docs.recipes [NAME ...]` runs each script and writes
NAME.md and NAME.png.

A script's docstring is the page: its first line is the title. What the script prints follows the
code, then its picture `recipe.png`, if it draws one. A comment `# needs: PACKAGE` names what a
script needs besides this project, and `# run: COMMAND` what starts it in place of `python`.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def scripts() -> list[Path]:
    """Every recipe, in the order of names."""
    return sorted(path for path in HERE.glob("*.py") if not path.name.startswith("_"))


def missing_package(script: Path) -> str:
    """The first package of `# needs:` that is not installed; "" where all are."""
    line = re.search(r"^# needs: (.+)$", script.read_text(encoding="utf-8"), re.MULTILINE)
    names = line[1].split(", ") if line else []
    return next((name for name in names if importlib.util.find_spec(name) is None), "")


def run(script: Path, folder: Path) -> str:
    """Run a recipe in `folder` and return what it prints. Raises CalledProcessError."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    places = {"PYTHONPATH": os.pathsep.join(path for path in paths if path), "MPLBACKEND": "Agg"}
    program = Path(sys.executable).parent
    search = f"{program}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | places | {"PATH": search, "HF_HUB_OFFLINE": "1"}
    line = re.search(r"^# run: (.+)$", script.read_text(encoding="utf-8"), re.MULTILINE)
    command = line[1].split() if line else [sys.executable]
    done = subprocess.run(
        [*command, script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def text_and_code(script: Path) -> tuple[str, str, str]:
    """Title, text and code of a recipe."""
    source = script.read_text(encoding="utf-8")
    docstring = ast.parse(source).body[0]
    assert isinstance(docstring, ast.Expr) and isinstance(docstring.value, ast.Constant)
    title, _, text = str(docstring.value.value).partition("\n")
    code = "\n".join(source.splitlines()[docstring.end_lineno :]).strip()
    return title.rstrip("."), text.strip(), code


def page(script: Path, output: str, picture: bool) -> str:
    """The Markdown page of a recipe."""
    title, text, code = text_and_code(script)
    parts = [f"# {title}", text, f"```python\n{code}\n```"]
    printed = output.strip("\n")  # a table may begin with spaces
    parts.append(f"It prints:\n\n```text\n{printed}\n```")
    if picture:
        parts.append(f"![{title}]({script.stem}.png)")
    return "\n\n".join(part for part in parts if part) + "\n"


def make(script: Path) -> None:
    """Run a recipe and write its page and picture."""
    with tempfile.TemporaryDirectory() as folder:
        output = run(script, Path(folder))
        drawn = Path(folder) / "recipe.png"
        if drawn.exists():
            shutil.copyfile(drawn, script.with_suffix(".png"))
        script.with_suffix(".md").write_text(page(script, output, drawn.exists()), encoding="utf-8")


def main(names: list[str]) -> int:
    """Make the pages of the recipes named, or of all. Says what is left out."""
    for script in scripts():
        if names and script.stem not in names:
            continue
        missing = missing_package(script)
        if missing:
            print(f"{script.stem}: left as it is, needs the package {missing}")
            continue
        make(script)
        print(f"{script.stem}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
