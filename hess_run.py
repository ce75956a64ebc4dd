"""Entry point of `hess-run`: whatever else is called `runner` or `experiments` here, this project's packages count.

A folder with `experiments/` or `runner.py` on PYTHONPATH would replace them. `python -m hess_run` is the same command.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("runner", "experiments")


def main() -> None:
    """Run the command line with this project's packages."""
    root = Path(__file__).resolve().parent
    for name in PACKAGES:
        spec = find_spec(name)
        places = [] if spec is None else spec.submodule_search_locations or []
        if str(root / name) not in map(str, places):
            sys.path.insert(0, str(root))  # processes that are started inherit the path
            break
    from runner.cli import main as command

    command()


if __name__ == "__main__":
    main()
