"""The shared look: stable, distinct also in grey, deterministic files that know where they come
from."""

import io
import json
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.lines import Line2D
from PIL import Image

from experiments.dag.protocol import drawing as dag
from experiments.three_layer import drawing as three_layer
from runner import stats
from runner.report import figures
from runner.report.answers.scope import Scope
from runner.report.figures import COLOURS, PlotStyles
from runner.report.output import draw as saving
from tests.errors import refusal


def ink(figure):
    """Share of the pixels that are not white."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=80)
    return float((np.asarray(Image.open(buffer).convert("L")) < 250).mean())


PAPERS = {"dag": dag.STYLES, "three_layer": three_layer.STYLES}
FAMILIES = [(paper, family) for paper, looks in PAPERS.items() for family in looks.families]


@pytest.mark.parametrize("paper, family", FAMILIES, ids=lambda x: x if isinstance(x, str) else x[0])
def test_members_of_a_family_never_share_a_sign(paper, family):
    looks = [PAPERS[paper].style(label) for label in family]
    for key in ("color", "marker", "linestyle"):
        assert len({str(look[key]) for look in looks}) == len(family)


def test_families_that_cannot_be_told_apart_are_refused():
    with refusal("sam twice"):
        PlotStyles(("gd", "sam"), ("SAM", "hsr"))
    with refusal("at most 8"):
        PlotStyles(tuple("abcdefghi"))


def test_styles_are_stable_for_any_label():
    looks = PlotStyles(("plain", "residual"))
    first = {"color": COLOURS[0], "marker": "o", "linestyle": "-"}
    assert looks.style("plain") == looks.style("Plain") == first
    heavy = ("matplotlib", "pandas", "scipy", "torch")
    code = (
        "import sys, runner.stats; from runner.report.figures import DEFAULT_STYLES as styles\n"
        "print(styles.style('something new'), "
        f"[m for m in {heavy} if m in sys.modules])"
    )
    for seed in ("1", "2"):
        words, env = [sys.executable, "-c", code], {"PYTHONHASHSEED": seed}
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
        assert done.stdout == f"{looks.style('something new')} []\n"  # importing is cheap, too
    assert "linestyle" not in looks.point_style("plain")


def test_new_figure_always_gives_a_grid_of_axes():
    assert figures.new_figure()[1].shape == (1, 1)
    figure, axes = figures.new_figure(2, 3, sharex=True)
    assert axes.shape == (2, 3)
    figures.letter(axes, ["first", *[""] * 4, "more words than " * 4])
    *titles, last = [ax.get_title(loc="left").strip() for ax in axes.flat]
    assert titles == ["(a) first", "(b)", "(c)", "(d)", "(e)"] and "\n" in last
    assert len(figure.axes) == 6


def test_panels_draw_every_key_once_and_label_the_outer_axes():
    drawn = []

    def draw(ax, key):
        drawn.append(key)
        ax.plot([1, 2], [1, 10 * key], label="measured")
        return "its own title" if key == 3 else None

    titles = {1: "one", 2: "two", 3: "three"}
    figure = figures.panels(titles, draw, x="depth", y="norm", columns=2, log="y", caption="n = 5")
    told = [
        (ax.get_title(loc="left"), ax.get_xlabel(), ax.get_ylabel(), ax.get_yscale())
        for ax in figure.axes
    ]
    assert drawn == [1, 2, 3] and told == [
        ("(a) one", "", "norm", "log"),
        ("(b) two", "depth", "", "log"),
        ("(c) its own title", "depth", "norm", "log"),
    ]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["measured"]
    assert figure.get_label() == "n = 5"
    figures.head(figure, "DAG paper, Fig. 3")
    assert figure.get_suptitle() == "DAG paper, Fig. 3"
    figures.head(figure, "HSR paper")
    assert figure.get_suptitle() == "HSR paper: DAG paper, Fig. 3"  # its own title is kept
    with pytest.raises(figures.NothingToDraw):
        figures.panels({}, draw)


def test_helpers_draw_something_and_survive_thin_data():
    rng = np.random.default_rng(0)
    figure, axes = figures.new_figure(2, 3)
    blank = ink(figure)
    axes[0, 0].plot(np.arange(5), np.exp(-np.arange(5)), label="plain")
    figures.log_axis(axes[0, 0])
    axes[1, 1].plot([1.5, 15.0])
    figures.log_axis(axes[1, 1])
    assert {2.0, 5.0, 10.0} <= set(axes[1, 1].get_yticks())
    figures.histogram(axes[0, 1], np.r_[rng.lognormal(size=100), np.nan])
    figures.histogram(axes[0, 2], [])
    figures.groups(axes[1, 0], {"low": rng.normal(size=30), "high": [], "N=3": [1.0, 1.0]})
    figures.heatmap(axes[1, 2], [[1.0, np.nan], [0.0, 3.0]], "norm", log=True)
    for ax in axes.flat:
        figures.legend(ax)
    figures.shared_legend(figure)
    assert ink(figure) > blank + 0.02
    assert "n = 100, 1 not shown" in axes[0, 1].get_legend().get_texts()[0].get_text()
    assert axes[1, 0].get_xticklabels()[1].get_text() == "high\nn = 0"


def test_a_figure_is_as_wide_as_its_labels_stay_readable_unless_another_width_is_asked_for():
    assert figures.new_figure(1, 5)[0].get_figwidth() == figures.WIDEST
    assert figures.new_figure(width=3.0)[0].get_figwidth() == 3.0
    with figures.drawn_in(12.0, 0.0):
        assert figures.new_figure(1, 5)[0].get_figwidth() == 12.0


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([10, 300], "10 20 50 100 200"),
        ([0.03, 0.6], "0.05 0.1 0.2 0.5"),
        ([2, 6], "2 3 5"),
        ([900, 20_000], "1,000 2,000 5,000 10,000 20,000"),
        ([1e-6, 1e3], ""),
        ([1e-6, 2e-5], ""),
        ([1e7, 2e8], ""),
    ],
)
def test_ticks_of_a_short_logarithmic_axis_are_plain_numbers_others_powers_of_ten(values, wanted):
    figure, axes = figures.new_figure()
    axes[0, 0].plot(values)
    figures.log_axis(axes[0, 0])
    figure.draw_without_rendering()
    texts = [tick.get_text() for tick in axes[0, 0].get_yticklabels()]
    shown = [text for text in texts if text]
    assert shown and set(wanted.split()) <= set(shown)
    assert {"10^" in tick for tick in shown} == {not wanted}


def test_colours_of_a_heatmap_are_linear_unless_asked_otherwise():
    _, axes = figures.new_figure(1, 2)
    figures.heatmap(axes[0, 0], [[1.0, -2.0], [0.0, 3.0]], "value")
    figures.heatmap(axes[0, 1], [[1.0, 1e3], [0.0, 1e6]], "value", log=True)
    linear, logarithmic = (ax.images[0].norm for ax in axes.flat)
    assert (linear(0.5), logarithmic(1e3)) == pytest.approx((0.5, 0.5))


def test_points_left_out_of_a_box_are_counted_and_a_percentile_line_stands_where_numpy_puts_it():
    values = np.random.default_rng(1).normal(size=1000)
    _, axes = figures.new_figure(1, 2)
    figures.groups(axes[0, 0], {"low": values})
    assert axes[0, 0].get_xticklabels()[0].get_text() == "low\nn = 1000\n300 shown"
    figures.histogram(axes[0, 1], values, label="low")
    assert axes[0, 1].lines[0].get_xdata()[0] == np.percentile(values, 90)
    assert axes[0, 1].get_legend_handles_labels()[1][0] == "low (n = 1000)"


def test_a_test_without_power_says_so():
    mute = stats.wilcoxon([1, 2, 3, 4, 5.0], [0, 0, 0, 0, 0.0], name="t")
    assert "p cannot fall below 0.0625" in figures.describe(mute)
    loud = stats.correct([stats.mann_whitney(np.arange(20) + 15.5, np.arange(20), name="t")])[0]
    text = figures.describe(loud)
    assert "Holm" in text and "shift 15.5" in text and "cannot" not in text
    assert " p < 1e-4," in text
    tied = stats.mann_whitney([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], name="t")
    assert " p = 1.00\nr = 0.00" in figures.describe(tied)
    rising = stats.spearman(np.arange(9), np.arange(9) ** 2, name="t")
    assert "ρ = 1.00" in figures.describe(rising)
    assert "no test" in figures.describe(stats.mann_whitney([], [1.0], name="t"))
    _, axes = figures.new_figure()
    axes[0, 0].set_xlabel("x")
    figures.annotate_test(axes[0, 0], loud)
    assert axes[0, 0].get_xlabel().startswith("x\nMann–Whitney p")


def draw():
    figure, axes = figures.new_figure()
    axes[0, 0].plot([1, 2, 3], label="plain", **PlotStyles(("plain",)).style("plain"))
    axes[0, 0].set(xlabel="x", ylabel="y")
    figures.legend(axes[0, 0])
    return figure


@pytest.mark.parametrize("suffix", saving.FORMATS)
def test_saved_files_are_deterministic_and_hold_their_provenance(tmp_path, suffix):
    stamp = {"experiment": "demo", "commit": "abc123"}
    for name in ("v1.5", "again"):
        path = tmp_path / f"{name}.{suffix}"
        path.write_bytes(saving.image_of(draw(), stamp, suffix))
    again, first = sorted(tmp_path.glob(f"*.{suffix}"))
    assert (again.name, first.name) == (f"again.{suffix}", f"v1.5.{suffix}")
    assert first.read_bytes() == again.read_bytes() and b"abc123" in first.read_bytes()
    if suffix == "png":
        about = Image.open(first).info
        assert json.loads(about["Description"]) == stamp and 149 < about["dpi"][0] < 201


SCOPES = {
    "stand-in data": Scope(paper="DAG", stand_in="cifar10"),
    "profile": Scope(profile="quick"),
    "more shown": Scope(paper="DAG", shown=("activation=tanh",)),
}


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
def test_what_is_not_the_papers_is_named_below_the_figure(scope):
    figure = draw()
    plain, marked, again = (
        saving.image_of(figure, {"footer": footer}) for footer in ("", scope.footer, "")
    )
    higher = Image.open(io.BytesIO(marked)).height - Image.open(io.BytesIO(plain)).height
    assert higher > 10 and again == plain


def test_a_shared_legend_stays_above_the_footer():
    figure = draw()
    figures.shared_legend(figure)
    ends = []
    for data in ("", "random-field stand-in data"):
        image = Image.open(io.BytesIO(saving.image_of(figure, {"footer": data}))).convert("RGB")
        red, _, blue = np.moveaxis(np.asarray(image, dtype=int), -1, 0)
        ends.append(np.flatnonzero((blue > red + 60).any(axis=1)).max())  # last row of the legend
    assert ends[0] == ends[1] < image.height - 15


def test_a_legend_shows_every_shape_of_a_label():
    figure, axes = figures.new_figure(1, 2)
    for ax, marker in zip(axes.flat, "os", strict=True):
        ax.plot([0], [0], marker=marker, label="published")
        ax.plot([0, 1], [0, 1], marker="x", label="ours")
    figures.shared_legend(figure)
    marks = [line.get_marker() for line in figure.legends[0].findobj(Line2D)]
    assert marks == ["o", "s", "x"]


def test_no_tick_beyond_what_a_share_can_be():
    _, axes = figures.new_figure(1, 1)
    ax = axes.flat[0]
    ax.plot([0, 1], [0.5, 1.1])
    limits = ax.get_ylim()
    figures.ticks_up_to(ax, 1)
    assert max(ax.get_yticks()) == pytest.approx(1) and ax.get_ylim() == limits
