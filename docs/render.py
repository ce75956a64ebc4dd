"""Write README's main results and docs/reproduction/ from their templates and the published
results: `make readme`.

Templates are Jinja, in docs/templates/: docs/reproduction/<name>.md is made from
reproduction/<name>.md.j2, and what README.md has between its two marks from results.md.j2. A number
there is a call of a function of `docs.published`:

    The rate of method A is {{ number("ws_bound", "rate", method="a") }} at init.

A test compares the files with their rendering, so that text and results cannot drift apart.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from docs import published
from docs.published import fmt

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = ROOT / "docs" / "templates"
FIRST, LAST = "<!-- results: made by `make readme` -->\n", "<!-- end of results -->"
"""Marks of README.md, around what its template makes."""
DAG = (
    *("exp1_resonance", "exp1_deep", "exp1b_spectral_norm", "exp2_bottleneck", "exp3_gn_gap"),
    *("exp3_stochastic", "exp3b_layernorm", "exp4_diamond", "exp5_attention", "exp6_resnet18"),
)
REBUILT = (
    *("exp1_resonance", "exp1_deep", "exp1b_spectral_norm"),
    *("exp3_gn_gap", "exp3_stochastic", "exp3b_layernorm", "exp4_diamond"),
)
"""Experiments whose numbers can be compared in every digit: initial networks and data order are the
authors'."""
HSR, ATTENTION = ("hsr_gradient", "hsr_regularization"), ("attention_hessian", "attention_newton")
EXPERIMENTS = (*DAG, *HSR, *ATTENTION, "ws_bound", "scalar_spectrum")
"""Of the five papers; without the audit."""


def main() -> None:
    """Rewrite every file; prints the names of those that have changed."""
    changed = []
    for path, text in pages().items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed.append(str(path.relative_to(ROOT)))
    print("\n".join(changed) or "all numbers agree with the published results")


def pages() -> dict[Path, str]:
    """Path -> text of every file that has a template."""
    found = {}
    for template in sorted(TEMPLATES.rglob("[!_]*.md.j2")):
        name = template.relative_to(TEMPLATES).as_posix()
        text = environment().get_template(name).render()
        path = ROOT / "docs" / name.removesuffix(".j2")
        if name == "results.md.j2":
            path = ROOT / "README.md"
            before, _, rest = path.read_text(encoding="utf-8").partition(FIRST)
            text = before + FIRST + text + LAST + rest.partition(LAST)[2]
        found[path] = text
    return found


@cache
def environment() -> Environment:
    """Jinja with the functions of this module; an unknown name is an error."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        finalize=shown,
        autoescape=False,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    made.globals |= {function.__name__: function for function in published.FUNCTIONS}
    made.globals |= {"DAG": DAG, "HSR": HSR, "ATTENTION": ATTENTION}
    made.globals |= {"EXPERIMENTS": EXPERIMENTS, "REBUILT": REBUILT}
    made.filters |= {"fmt": fmt, "positive": abs}
    return made


def shown(value: Any) -> Any:
    """A number with three digits; anything else as it is."""
    return fmt(value) if isinstance(value, int | float) else value


if __name__ == "__main__":
    main()
