"""Names and arguments of the version before say what to write instead."""

import pytest
import torch

import runner.curvature as rc
from runner.curvature.basics import removed


@pytest.mark.parametrize("name", removed.NAMES)
def test_a_removed_name_says_what_to_write_instead(name):
    assert name not in rc.__all__
    with pytest.raises(ImportError, match=f"^{name} has been removed: write ") as caught:
        getattr(rc, name)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_is_no_attribute():
    assert not hasattr(rc, "no_such_name")


@removed.refuses_removed
def measure(value, factor=1):
    """Twice documented: the decorated function keeps this text."""
    return value * factor


def test_removed_arguments_are_refused_and_others_are_passed(monkeypatch):
    monkeypatch.setitem(removed.ARGUMENTS, "old", "write factor=")
    assert measure(2, factor=3) == 6 and measure.__doc__
    with pytest.raises(rc.MeasurementError, match=r"^old= has been removed: write factor=$"):
        measure(2, old=3)
    with pytest.raises(TypeError, match="unknown"):
        measure(2, unknown=3)


def test_removed_parts_and_options_of_operators_say_what_to_write():
    given = torch.nn.Linear(3, 2), "mse", (torch.ones(4, 3), torch.zeros(4, 2))
    whole = rc.ParameterOperator(*given)
    newton = r"has been removed: for .* write part='gauss_newton'; for other losses use curvlinops$"
    with pytest.raises(rc.MeasurementError, match=rf"^part='fisher' {newton}"):
        rc.LayerOperator(*given, part="fisher")
    with pytest.raises(rc.MeasurementError, match=r"^part='empirical_fisher' .*EFLinearOperator"):
        whole.with_part("empirical_fisher")
    with pytest.raises(rc.MeasurementError, match=f"^likelihood= {newton}"):
        rc.ParameterOperator(*given, likelihood="normal")
    with pytest.raises(rc.MeasurementError, match="expected part as one of"):
        whole.with_part("tensor")


def test_metrics_of_a_graph_are_another_function():
    dag = rc.Dag.from_sequential([torch.sin], loss="mse")
    says = r"^inter_layer_metrics\(dag, ...\) has been removed: write graph_metrics\(dag, x, y\)$"
    with pytest.raises(rc.MeasurementError, match=says):
        rc.inter_layer_metrics(dag, torch.ones(2, 3), torch.zeros(2, 3))
