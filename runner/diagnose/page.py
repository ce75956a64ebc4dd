"""The page of a diagnosis: one HTML file with its figures inside, without scripts, fonts or files from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment

from runner.report.site.build import STYLE as CSS

if TYPE_CHECKING:
    import pandas as pd

FOLDED = 25
"""A table with more rows is closed until clicked."""

LEADS = {
    "scalars": "error: standard error, residual or half interval, as the method says; NaN with the reason in status.",
    "certificate": "Products against finite differences of gradients, in float64, example by example of the first "
    "batch between layers, batch by batch of all over the parameters; a kink (a ReLU "
    "at 0) that no step avoids is named with its examples, and the certificate is of the others.",
    "layers": "R = ‖H[v,w]‖_F of the mean over the examples, C = R(v,w)/√(R(v,v) R(w,w)), D = ‖H‖_F²/‖H‖₂², "
    "gap = ‖T‖/‖GN‖, for the outputs named, of the first batch; exact values have error 0.",
    "groups": "The same between groups of parameters; share: of ‖H‖², where K-FAC and every block-diagonal method "
    "keep the rows with v = w alone; where it is estimated, D is of these rows. The group called module (or "
    "module(), where a submodule has that name) holds the parameters that belong to the module itself.",
    "eigenvalues": "Of the Hessian in the parameters; residual = |Hu − λu|.",
    "cost": "Price foretold before the start and taken in the end, in gradients of all batches (seconds of the "
    "processor; network: the checks and what was run to tell the price). Parts of more than a second were foretold "
    "within a factor of three on the networks that this was measured on; of shorter ones set-up costs decide.",
    "nodes": "Where perturbations are added, and what each is computed from.",
}
TITLES = {
    "scalars": "Numbers",
    "certificate": "Certificate",
    "layers": "Between layers",
    "groups": "Between groups of parameters",
    "eigenvalues": "Eigenvalues",
    "cost": "Cost",
    "nodes": "Nodes",
    "notes": "Notes",
}
HIDDEN = ("density", "notes")
"""Tables that the page shows otherwise."""

TEMPLATE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ name }}</title><style>{{ css }}</style></head><body>
<h1>{{ name }}</h1>
<p class="lead">{{ lead }}</p>
{% for line in failed %}<div class="error">{{ line }}</div>{% endfor %}
{% if notes %}<h2>Notes</h2><ul>{% for note in notes %}<li>{{ note }}</li>{% endfor %}</ul>{% endif %}
{% for section in sections %}
<h2>{{ section.title }}</h2>
{% if section.lead %}<p>{{ section.lead }}</p>{% endif %}
{% if section.folded %}<details><summary>{{ section.rows | length }} rows</summary>{% endif %}
<div class="scroll"><table><thead><tr>{% for c in section.columns %}<th>{{ c }}</th>{% endfor %}</tr></thead><tbody>
{% for row in section.rows %}<tr>
{%- for cell in row %}<td{% if cell is number %} class="number"{% endif %}>{{ cell | shown }}</td>{% endfor -%}
</tr>
{% endfor %}</tbody></table></div>
{% if section.folded %}</details>{% endif %}
{% endfor %}
{% if figures %}<h2>Figures</h2><div class="figures">{% for figure in figures %}
<figure><img alt="{{ figure.name }}" src="data:image/png;base64,{{ figure.data }}">
<figcaption>{{ figure.name }}</figcaption></figure>
{% endfor %}</div>{% endif %}
<h2>Files</h2><ul>{% for file in files %}<li><a href="{{ file }}">{{ file }}</a></li>{% endfor %}</ul>
<h2>Origin</h2><table>
{% for key, value in origin.items() %}<tr><th>{{ key }}</th><td>{{ value }}</td></tr>{% endfor %}
</table>
</body></html>
"""


def shown(value: Any) -> str:
    """A cell of a table: floats with four digits, NaN as "–"."""
    if isinstance(value, float):
        return (
            "–" if value != value else str(int(value)) if value == int(value) and abs(value) < 1e6 else f"{value:.4g}"
        )
    return str(value)


def page(
    name: str,
    lead: str,
    tables: Mapping[str, pd.DataFrame],
    figures: Sequence[Path],
    files: Sequence[str],
    failed: Sequence[str],
    origin: Mapping[str, Any],
) -> str:
    """The HTML text. figures: PNG files to put inside; files: names to link, relative to the page."""
    environment = Environment(autoescape=True)
    environment.filters["shown"] = shown
    order = [n for n in TITLES if n in tables] + [n for n in tables if n not in TITLES]
    sections = [
        {
            "title": TITLES.get(n, n),
            "lead": LEADS.get(n, ""),
            "columns": [str(c).replace("_", " ") for c in tables[n].columns],
            "rows": tables[n].values.tolist(),
            "folded": len(tables[n]) > FOLDED,
        }
        for n in order
        if n not in HIDDEN and len(tables[n])
    ]
    notes = list(dict.fromkeys(tables["notes"]["note"])) if "notes" in tables else []
    pictures = [{"name": p.stem, "data": base64.b64encode(p.read_bytes()).decode()} for p in figures]
    return environment.from_string(TEMPLATE).render(
        name=name,
        css=CSS,
        lead=lead,
        failed=failed,
        notes=notes,
        sections=sections,
        figures=pictures,
        files=files,
        origin=origin,
    )
