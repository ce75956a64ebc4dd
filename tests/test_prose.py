"""Facts are data: no module reads a fact out of a sentence that this project wrote, or out of
code."""

import ast

import pytest

from tests.sources import files, nodes, relative

SENTENCES = {
    *("alt", "alts", "caption", "captions", "detail", "error", "lines", "message", "note", "notes"),
    *("reason", "reasons", "says", "statement", "status", "summary", "threshold", "what"),
}
"""Columns, keys and attributes that hold sentences."""
PARSERS = {
    *("endswith", "find", "index", "partition", "removeprefix", "removesuffix", "rpartition"),
    *("rsplit", "split", "splitlines", "startswith"),
}
"""Methods that take a text apart; `split()` without a separator only normalises spaces."""
OF_CODE = {"co_consts", "co_names", "getsource"}
NOT_YET = {
    "runner/curvature/identities/causes.py",
}
"""Modules that still do; this list only shrinks."""


def is_sentence(node: ast.AST) -> bool:
    """Whether an expression takes a sentence from a row, a record or an object."""
    for part in ast.walk(node):
        match part:
            case ast.Subscript(slice=ast.Constant(value=key)) if key in SENTENCES:
                return True
            case ast.Attribute(attr=name) if name in SENTENCES:
                return True
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=key), *_]) if (
                key in SENTENCES
            ):
                return True
    return False


def is_parsed(node: ast.AST) -> bool:
    """Whether a node takes a sentence apart, looks for words in it, or reads code."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re")), args=[_, *texts]):
            return any(map(is_sentence, texts))
        case ast.Call(func=ast.Attribute(value=text, attr=name), args=[_, *_]) if name in PARSERS:
            return is_sentence(text)
        case ast.Compare(
            left=ast.Constant() | ast.Name() | ast.JoinedStr(),
            ops=[ast.In() | ast.NotIn()],
            comparators=[text],
        ) if not isinstance(text, ast.Tuple | ast.List | ast.Set):
            return is_sentence(text)
        case ast.Attribute(attr=name):
            return name in OF_CODE
    return False


def test_no_module_parses_its_own_sentences():
    found = {}
    for path in files("runner", "experiments", "docs"):
        lines = [node.lineno for node in nodes(path) if is_parsed(node)]
        if lines:
            found[relative(path)] = lines
    told = f"{found}; reads no sentence any more: {NOT_YET - set(found)}"
    assert set(found) == NOT_YET, told


FORMS = {
    'row["detail"].partition(";")[0]': True,
    'if "other seeds" in claim.detail: pass': True,
    're.search(r"seed (\\d+)", str(record.get("reason")))': True,
    'claim.statement.endswith("untrained")': True,
    "maker.__code__.co_names": True,
    'f"{label}: " in drawing.lines': True,
    '" ".join(row["error"].split())': False,
    'row["verdict"] in ORDER': False,
    'name.removeprefix("dag.")': False,
}
"""Code -> whether it takes a sentence apart."""


@pytest.mark.parametrize("source", FORMS)
def test_the_known_forms_are_found_and_other_texts_may_be_taken_apart(source):
    assert sum(map(is_parsed, ast.walk(ast.parse(source)))) == FORMS[source]
