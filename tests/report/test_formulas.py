"""Formulas in plain text: what becomes MathML, what stays text, and that the elements nest rightly."""

from xml.etree import ElementTree

import pytest

from runner.report.formulas import FORMULA, MARK, formulas, marked, mathml, table

TREES = {
    "C(d)": "math(mrow(mi:C mo:( mi:d mo:)))",
    "λ_sup": "math(msub(mi:λ mi:sup))",
    "λ₁²": "math(msubsup(mi:λ mn:1 mn:2))",
    "‖H^GN‖_F": "math(msub(mrow(mo:‖ msup(mi:H mi:GN) mo:‖) mi:F))",
    "||W||²": "math(msup(mrow(mo:‖ mi:W mo:‖) mn:2))",
    "Φ": "math(mi:Φ)",
    "E[σ''²]": "math(mrow(mi:E mo:[ msup(mrow(mi:σ mi:″) mn:2) mo:]))",
    "D_uv^T": "math(msubsup(mi:D mrow(mi:u mi:v) mi:T))",
    "rho^k": "math(msup(mi:ρ mi:k))",
    "10^-2": "math(msup(mn:10 mrow(mo:− mn:2)))",
    "R(0)/R(4)": "math(mrow(mi:R mo:( mn:0 mo:) mo:/ mi:R mo:( mn:4 mo:)))",
    "r_theta_v": "math(msub(mi:r msub(mi:θ mi:v)))",
}


def tree(element: ElementTree.Element) -> str:
    inside = " ".join(map(tree, element))
    return f"{element.tag}({inside})" if inside else f"{element.tag}:{element.text}"


@pytest.mark.parametrize(("formula", "expected"), TREES.items())
def test_a_formula_is_one_tree_of_elements(formula, expected):
    assert FORMULA.findall(f"a {formula}, and so on") == [formula]
    assert tree(ElementTree.fromstring(mathml(formula))) == expected


@pytest.mark.parametrize(
    "text",
    [
        "plain_resnet18",
        "exp1b_spectral_norm",
        "the paper's",
        "arch='x'",
        "Table N.5(a)",
        "seed(s)",
        "1e-06",
        "ReLU",
        "H.7",
    ],
)
def test_words_identifiers_and_places_stay_text(text):
    assert FORMULA.findall(text) == []


def test_text_around_formulas_is_escaped_and_scripts_find_every_formula():
    text = "<b>R²</b> & λ_D"
    html = str(formulas(text))
    assert html.startswith("&lt;b&gt;<math>") and "&amp;" in html
    parts = marked(text).split(MARK)
    assert "".join(parts) == text and set(parts[1::2]) == set(table([text])) == {"R²", "λ_D"}
