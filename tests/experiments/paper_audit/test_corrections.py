"""Corrections of the errata on the family of simplest networks."""

import math

import pytest

from experiments.paper_audit.attention import cases, terms
from experiments.paper_audit.corrections import CLASSES, Correction, corrections, scope, tried
from experiments.paper_audit.dag import parameters, paths, probes, recursion
from experiments.paper_audit.dag.comparison import averaged
from experiments.paper_audit.dag.instances import relative_error
from experiments.paper_audit.dag.oracle import examples, first_example
from experiments.paper_audit.dag.parameter_oracle import parameter_blocks
from experiments.paper_audit.family import ABSENT, MEMBERS, attention, graphs, linear, three_layer
from experiments.paper_audit.pages import paper_page
from experiments.paper_audit.papers import errata, keys
from experiments.paper_audit.scalar import determinant
from experiments.paper_audit.tensors import norm_of, spectral_norm
from tests.slow import daily

TRIED = [
    (key, erratum["id"], member)
    for key in keys()
    for erratum in errata(key)["erratum"]
    if erratum["kind"] in CLASSES
    for member in scope(key, erratum).inside
]


@pytest.mark.parametrize("case", daily(TRIED, set(TRIED[::4])), ids=" ".join)
def test_a_correction_holds_on_the_simplest_networks(case):
    key, name, member = case
    correction = corrections(key)[name]
    errors = tried(correction, member)
    assert errors, "a member that an entry names is tried"
    assert max(errors) <= correction.tolerance


def fails_somewhere(networks, errors, key="dag"):
    members = [member for member in MEMBERS if (key, member) not in ABSENT]
    found = [tried(Correction(networks, errors, 1e-9), member) for member in members]
    return max(max(of_member, default=0.0) for of_member in found) > 1e-6


def rate(case):
    """Slope of −log R(d) over −ln ρ of a chain: an earlier correction had b >= −ln ρ."""
    e = first_example(case)
    order = e.dag.order
    if len(order) == 8:
        near = sum(norm_of(e.blocks[v, v]) for v in order) / 8
        far = norm_of(e.blocks[order[0], order[-1]])
        rho = max(float(spectral_norm(d)) for d in e.jacobian.values())
        yield -math.log(rho) - math.log(near / far) / 7


def decided_by_the_sum(case):
    """An earlier correction: R(v,out) is away from zero where the sum over paths is."""
    for e in examples(case):
        for v in case.dag.order:
            block = e.blocks[v, case.dag.output]
            paths_to_output = float(spectral_norm(e.total[case.dag.output, v]))
            yield float(paths_to_output > 1e-3 > norm_of(block))


def eq2(case):
    yield from (relative_error(recursion.second(e), e.blocks) for e in examples(case))


def eq5(case):
    yield relative_error(averaged(case, parameters.equation_5), parameter_blocks(case))


def eq11(case):
    for e in examples(case):
        found = {pair: paths.equation_11(e, *pair) for pair in e.blocks}
        yield relative_error(found, e.blocks)


def eq12(case):
    yield norm_of(determinant.printed_matrix(case) - case.hessian)


def lemma_d1(matrices):
    d, n = matrices[0].shape
    for k in terms.indices(n, d, terms.both_other):
        t = terms.Terms(*matrices, k)
        yield float((cases.d1(t) - terms.derivative(terms.f01, t, 2)).abs())


@pytest.mark.parametrize(
    "networks, errors, key",
    [
        (graphs, rate, "dag"),
        (graphs, decided_by_the_sum, "dag"),
        (graphs, eq2, "dag"),
        (graphs, eq5, "dag"),
        (graphs, eq11, "dag"),
        (linear, eq12, "scalar"),
        (attention, lemma_d1, "attention"),
    ],
)
def test_wrong_lines_fail_on_the_family(networks, errors, key):
    """The two corrections that were false, and printed lines: the family can refute a statement."""
    assert fails_somewhere(networks, errors, key)


def test_a_correction_that_was_not_tried_does_not_hold():
    nothing = Correction(three_layer, lambda case: [], 1e-9)
    assert tried(nothing, "one unit") == []
    undefined = Correction(three_layer, lambda case: [math.nan], 1e-9)
    assert tried(undefined, "one unit")[0] == math.inf


@pytest.mark.parametrize(
    "stated",
    [
        {"family": ["one unit"]},
        {"family": "all", "outside": {"one unit": "why"}},
        {"family": ["two units"], "outside": "why"},
        {"family": [], "outside": {"one unit": "why"}},
    ],
)
def test_each_member_is_inside_or_outside_with_a_reason(stated):
    with pytest.raises(ValueError, match="expected each member"):
        scope("dag", {"id": "dag.x", **stated})
    of_scalar = scope("scalar", {"id": "scalar.x", "family": "all"})
    assert "depth 1" in of_scalar.outside and "depth 1" not in of_scalar.inside


def test_a_page_says_where_a_correction_fails():
    entry = {
        **dict.fromkeys(("printed", "corrected", "elsewhere", "consequence", "experiments"), ""),
        **{"label": "A4", "class": "A", "id": "dag.x", "place": "Eq. 1", "authors_view": "v"},
        **{"reply": "but", "also_affects": [], "worked_checks": [], "outside": {"depth 1": "why"}},
        "tried": [
            {"member": "one unit", "error": 1e-16, "holds": True},
            {"member": "two classes", "error": 0.25, "holds": False},
        ],
    }
    notation = entry | {"label": "C1", "class": "C"}
    page = paper_page("dag", [], [entry, notation])
    assert "- **C1** The correction **fails** on: two classes" in page
    assert "### A4. Eq. 1" in page and "Why the error stands:* but" in page
    assert "The correction **fails** on: two classes, by 0.25." in page and "one unit" not in page


def test_the_tail_of_an_estimate_with_a_certain_error():
    """An earlier correction of Appendix B had ln(1/δ), which is 0 for an error that is certain."""
    assert max(probes.error_ratios(probes.SWAP, above=1.0)) == math.inf
    assert max(probes.error_ratios(probes.SWAP, above=2.0)) <= 2
