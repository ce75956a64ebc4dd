"""The cells that a figure says it is drawn from are enough: from them alone the same picture is
drawn."""

import pytest

from runner import results
from runner.contract import Redrawn, analyse, figure_settings
from runner.report.draw import image_of, made
from runner.run import config


def picture(analysis, name):
    return image_of(made(analysis.figures()[name], partial=False), {})


def of_cells(tables, cells, one_seed):
    """The rows of these cells, at the first seed where a figure shows no other."""
    found = {}
    for table, rows in tables.items():
        for name, values in cells.items():
            if name in rows:
                rows = rows[rows[name].isin(values)]
        if one_seed:
            rows = rows[rows["seed"] == rows["seed"].min()]
        if len(rows):
            found[table] = rows
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ws_bound", "hsr_gradient", "scalar_spectrum"])
def test_a_figure_is_drawn_from_the_cells_that_it_names(name, published):
    experiment = config.preview(name)
    tables = dict(results.load(name))
    whole = analyse(experiment, tables)
    named = {f: m for f, m in whole.figures().items() if isinstance(m, Redrawn) and m.cells}
    assert named
    for figure, maker in named.items():
        settings = figure_settings(experiment).get(maker.place, {})
        grid = {key: value for key, value in settings.items() if isinstance(value, list)}
        part = of_cells(tables, {**grid, **maker.cells}, maker.one_seed)
        assert sum(map(len, part.values())) < sum(map(len, tables.values()))
        assert picture(analyse(experiment, part), figure) == picture(whole, figure), figure
