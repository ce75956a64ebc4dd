"""The cells that a figure says it is drawn from are enough: from them alone the same picture is
drawn."""

from dataclasses import replace

import pytest

from runner import results
from runner.contract import Redrawn, analyse, figure_settings
from runner.report.output.draw import image_of, made
from runner.run.config.experiment import preview
from runner.store.cells import merge, within


def picture(analysis, name):
    return image_of(made(analysis.figures()[name], partial=False), {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "attention_newton",
        "exp5_attention",
        "exp6_resnet18",
        "hsr_gradient",
        "hsr_regularization",
        "scalar_spectrum",
        "ws_bound",
    ],
)
def test_a_figure_is_drawn_from_the_cells_that_it_names(name, published):
    experiment = preview(name)
    cells = within(results.load(name).cells, experiment, experiment.paper_seeds)
    whole = analyse(experiment, merge(cells))
    named = {f: m for f, m in whole.figures().items() if isinstance(m, Redrawn) and m.cells}
    assert named
    others = []
    for figure, maker in named.items():
        settings = {**figure_settings(experiment).get(maker.place, {}), **maker.cells}
        asked = replace(experiment, **settings)
        part = within(cells, asked, [42] if maker.one_seed else experiment.paper_seeds)
        assert 0 < len(part) < len(cells)
        if picture(analyse(asked, merge(part)), figure) != picture(whole, figure):
            others.append(figure)
    assert others == []
