"""Formulas in plain text as MathML: C(d), ‖H^GN‖_F, λ_sup, σ''², D_v^T, rho^k.

A formula is a run of symbols: letters with indices, powers or arguments, norms, Greek letters.
Words stay text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from typing import Any

WRITTEN = (
    "lambda rho Sigma sigma gamma delta eta theta alpha beta phi Phi mu kappa tau omega xi chi "
    "epsilon nu zeta psi Psi Omega grad sum"
)
NAMES: Mapping[str, str] = dict(zip(WRITTEN.split(), "λρΣσγδηθαβφΦμκτωξχενζψΨΩ∇Σ", strict=True))
"""Symbols that are written out where they have an index or a power."""
SMALL = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵀ₀₁₂₃₄₅₆₇₈₉", "0123456789+−T0123456789")

_GREEK = "Α-Ωα-ω∇ℓ"
_LETTER = f"(?:{'|'.join(NAMES)}|[A-ZṼ{_GREEK}a-z])"
_WORD = f"[A-Za-z0-9{_GREEK}]+"
_SUB = (
    rf"_(?:\{{[^{{}}]*\}}|{_WORD}(?:_{_WORD})?(?:,[a-z]\d?(?!\w))?|[+±*-])"
    rf"|[₀-₉]+|(?<=[{_GREEK}])\d(?![\d.])"
)
_SUP = (
    r"\^(?:\{[^{}]*\}|\([^()\s]{1,12}\)|[-−]?(?:\d+(?:\.\d+)?|[A-Za-z]+)|[+±*-])"
    r"|[⁰¹²³⁴-⁹⁺⁻ᵀ]+|\*(?![\w*])"
)
_SCRIPT = rf"(?:'{{1,4}}(?![A-Za-z'])|{_SUB}|{_SUP})"
_INSIDE = r"(?:\((?!s\))[^()\s]{1,12}\)|\[[^\[\]\s]{1,12}\])"
_NORM = rf"(?:‖[^‖]{{1,30}}‖|\|\|[^|\s]{{1,12}}\|\|){_SCRIPT}*"
_ATOM = rf"(?:{_NORM}|d?{_LETTER}(?:{_SCRIPT}+{_INSIDE}?|{_INSIDE})|[{_GREEK}](?![A-Za-z]))"
FORMULA = re.compile(
    rf"(?<![A-Za-z_'’.\\`])(?<![A-Za-z]\d){_ATOM}(?:/?{_ATOM}|[A-Za-z](?![\w']))*"
    r"|(?<![\w.^'/-])\d+\^[-−]?\d+|(?<![\w.^'/-])[RHΦ](?![\w.'-]|\s?=\s?')"
)
"""A run of symbols in a text."""
_PART = re.compile(
    rf"(?P<norm>{_NORM})|(?P<letter>{_LETTER})(?P<scripts>{_SCRIPT}*)"
    rf"|(?P<number>\d+(?:\.\d+)?)(?P<power>(?:{_SUP})?)|(?P<other>\S)"
)
_ONE = re.compile(rf"{_SCRIPT}|\d")


def formulas(text: Any) -> Any:
    """Text as HTML, its formulas as MathML.

    >>> formulas("λ₁ < 1 of plain_resnet18")
    Markup('<math><msub><mi>λ</mi><mn>1</mn></msub></math> &lt; 1 of plain_resnet18')
    """
    from markupsafe import Markup

    text = str(text)
    found = []
    at = 0
    for match in FORMULA.finditer(text):
        found += [escape(text[at : match.start()]), mathml(match[0])]
        at = match.end()
    return Markup("".join([*found, escape(text[at:])]))


@cache
def mathml(formula: str) -> str:
    """A formula as MathML.

    >>> mathml("σ''²")
    '<math><msup><mrow><mi>σ</mi><mi>″</mi></mrow><mn>2</mn></msup></math>'
    """
    return f"<math>{_row(formula)}</math>"


MARK = "\u2061"
"""Around a formula in a text that a script shows: the invisible sign of an applied function."""


def marked(text: str) -> str:
    """A text with its formulas between two `MARK`."""
    return FORMULA.sub(rf"{MARK}\g<0>{MARK}", text)


def table(texts: Iterable[str]) -> dict[str, str]:
    """Formula in these texts -> MathML.

    >>> table(["R falls", "R grows"])
    {'R': '<math><mi>R</mi></math>'}
    """
    return {formula: mathml(formula) for text in texts for formula in FORMULA.findall(text)}


def _row(text: str) -> str:
    """The elements of a formula, in one `mrow` where they are several."""
    elements = [_element(match) for match in _PART.finditer(text)]
    return elements[0] if len(elements) == 1 else f"<mrow>{''.join(elements)}</mrow>"


def _element(match: re.Match[str]) -> str:
    if match["norm"]:
        bar = match[0][0]
        inside, _, scripts = match[0].strip(bar).partition("‖" if bar == "‖" else "||")
        return _with_scripts(f"<mrow><mo>‖</mo>{_row(inside)}<mo>‖</mo></mrow>", scripts)
    if match["letter"]:
        return _with_scripts(
            f"<mi>{NAMES.get(match['letter'], match['letter'])}</mi>", match["scripts"]
        )
    if match["number"]:
        return _with_scripts(f"<mn>{match['number']}</mn>", match["power"])
    return f"<mo>{escape(match['other'].replace('-', '−'))}</mo>"


def _with_scripts(base: str, scripts: str) -> str:
    """A symbol with its primes, indices and powers; an index and a power next to each other are one
    element."""
    sub = sup = ""
    for script in [*_ONE.findall(scripts), ""]:
        primes = script.startswith("'")
        below = re.match(r"[_0-9₀-₉]", script)
        if not script or primes or (sub if below else sup):
            base = _joined(base, sub, sup)
            sub = ""
            sup = ""
        if primes:
            base = f"<mrow>{base}<mi>{'′″‴⁗'[len(script) - 1]}</mi></mrow>"
        elif below:
            sub = _script(script)
        elif script:
            sup = _script(script)
    return base


def _joined(base: str, sub: str, sup: str) -> str:
    if sub and sup:
        return f"<msubsup>{base}{sub}{sup}</msubsup>"
    if sub:
        return f"<msub>{base}{sub}</msub>"
    return f"<msup>{base}{sup}</msup>" if sup else base


def _script(text: str) -> str:
    """The content of an index or a power; a word is one upright symbol."""
    small = text.translate(SMALL)
    content = small.removeprefix("_").removeprefix("^")
    if content.startswith("{"):
        content = content[1:-1]
    word = content.isalpha() and content not in NAMES and (len(content) > 2 or content.isupper())
    return f"<mi>{content}</mi>" if word else _row(content)
