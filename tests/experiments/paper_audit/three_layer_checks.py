"""What the audits of the two three-layer papers have in common."""

from experiments.paper_audit.formula import TOLERANCE, Formula


def assert_verdict(formula: Formula) -> None:
    """The verdict follows from the numbers, and what is said about it is complete."""
    outcome = formula.check()
    assert outcome.verdict == formula.expected, f"printed off by {outcome.printed:.3g}, corrected {outcome.corrected}"
    if formula.expected == "holds":
        assert not formula.difference and not formula.correction and not outcome.counterexample
    else:
        assert formula.difference and formula.correction and outcome.counterexample
        # A wrong formula is wrong by far more than rounding.
        assert outcome.printed > 1e-4
        assert outcome.corrected is not None and outcome.corrected < TOLERANCE
    assert outcome.instances >= 1
