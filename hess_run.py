"""Entry point of `hess-run`: this project's packages, whatever else is called `runner` here.

A folder with `experiments/` or `runner.py` on PYTHONPATH or in the working directory would replace
them. `python -m hess_run` is the same command; `import hess_run` before
`from runner.curvature import` does the same in Python.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("runner", "experiments")


def own_packages() -> None:
    """Put this project's packages first. Raises ImportError where another `runner` is imported."""
    root = Path(__file__).resolve().parent
    for name in PACKAGES:
        spec = find_spec(name)
        places = [] if spec is None else spec.submodule_search_locations or []
        if str(root / name) in map(str, places):
            continue
        if name in sys.modules:
            raise ImportError(
                f"expected the package {name!r} of hess-run, found another one that is imported "
                f"already: write `import hess_run` before it"
            )
        sys.path.insert(0, str(root))  # processes that are started inherit the path
        return


def main() -> None:
    """Run the command line with this project's packages."""
    from runner.cli import main as command

    command()


own_packages()

if __name__ == "__main__":
    main()
