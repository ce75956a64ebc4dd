"""One suite for every experiment that has a YAML file: what the runner and the reader may rely
on."""

import json
import re

import pytest

from runner.contract import SettingError
from runner.contract.schema import identifying
from runner.report.answers.reference import numbers_of
from runner.run.config.experiment import preview
from runner.run.config.files import experiment_names
from runner.run.config.jobs import build_job
from tests.errors import mistakes, refusal

NAMES = experiment_names()


@pytest.mark.parametrize("name", NAMES)
def test_cells_are_distinct_and_cost_something(name):
    cells = list(preview(name).cells())
    assert cells
    assert len({cell.label for cell in cells}) == len(cells)
    for cell in cells:
        assert cell.seconds > 0 and cell.memory_gib > 0
        assert all(isinstance(value, str | int | float | bool) for value in cell.params.values())


def test_no_two_experiments_have_one_title():
    titles = [preview(name).title for name in NAMES]
    assert all(titles) and len(set(titles)) == len(titles)


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_json(name):
    found = identifying(preview(name))
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize("name", NAMES)
def test_paper_profile_is_what_listings_show(name):
    job = build_job([f"experiment={name}"])
    assert identifying(job.experiment) == identifying(preview(name))
    assert [c.label for c in job.experiment.cells()] == [c.label for c in preview(name).cells()]


@pytest.mark.parametrize("name", NAMES)
def test_quick_profile_is_smaller(name):
    quick = build_job([f"experiment={name}", "profile=quick"]).experiment
    assert sum(c.seconds for c in quick.cells()) <= sum(c.seconds for c in preview(name).cells())


REFUSED = """
ws_bound experiment.protocol=[printed] experiment.activation=[tanh] \
| expected at least one cell, found none
hsr_gradient experiment.fixed_sample=50 | fixed_sample: expected 0 to 49, found 50
hsr_regularization dataset.inputs=3 | decision boundaries
hsr_gradient experiment.cost_units=[] | cost_units: expected at least one value
hsr_gradient experiment.hidden=99999999999999999999 | hidden: expected a whole number of 64 bits
ws_bound dataset.test=[10,10] | dataset.test: expected each value once, found 10 twice
attention_newton experiment.max_steps=-1 | max_steps: expected a value above zero
attention_hessian experiment.search=[ascent] experiment.tokens=[8] experiment.width=[8] \
| expected at least one cell
attention_hessian experiment.radius=[1.0] | above 1
attention_newton experiment.scan=[1.0,0.1] | rising values
attention_newton experiment.size=[4by3] | such as '4x3'
attention_newton experiment.study=[basin] | expected one of theorem
phi_block_diagonal experiment.steps=[5,2] | expected increasing numbers
scalar_spectrum experiment.part=[edges] | did you mean edge
exp1_resonance experiment.arch=[plane] | did you mean plain
exp1_resonance dataset=surrogate dataset.test=20 | at most the 20 test images
exp2_bottleneck experiment.rank_examples=65 | at most metric.examples=64
exp2_bottleneck experiment.depth=[2] | at least 3
exp3_stochastic experiment.probes=[1] | at least 2
exp3b_layernorm training.perturbation=2.0 | training.perturbation: expected
exp4_diamond experiment.merge=[add] | merge
exp5_attention model.width=5 | expected the tokens'
exp5_attention metric.examples=100000 | expected at most the
exp6_resnet18 experiment.checkpoint=[start] | expected one of init
exp1_resonance dataset=gaussian | takes another kind of dataset: cifar10, cifar100, surrogate
ws_bound dataset=cifar10 | takes another kind of dataset: gaussian
exp1_resonance model=diamond | takes another kind of model: bottleneck_mlp, mlp, residual_mlp
exp1_resonance metric=blocks | no such choice; known: inter_layer
exp1_resonance training=descent | takes another kind of training: minibatch
attention_hessian dataset=cifar10 | does not use this group
exp1_resonance dataset.mean=[1,1] | dataset.mean: expected 3 values, found 2
exp1_resonance dataset.classes=5 | dataset.classes: expected 10 for cifar10, found 5
exp1_resonance dataset.train=50001 | dataset.train: expected at most 50000
exp5_attention model.width=8 | model.width: expected the tokens' 16, found 8
attention_hessian device=cuda | device=cuda: attention_hessian runs on cpu only
exp4_diamond metric.double=99999999999999999999 | metric.double: expected true or false
"""


@pytest.mark.parametrize("words, text", mistakes(REFUSED), ids=str)
def test_settings_that_cannot_be_meant_are_refused(words, text):
    with refusal(re.escape(text), SettingError):
        build_job([f"experiment={words[0]}", *words[1:]])


@pytest.mark.parametrize("name", NAMES)
def test_reference_can_be_read(name):
    numbers = numbers_of(name)
    if numbers is None:
        pytest.skip("the paper prints no number for this experiment")
    table = numbers.read()
    assert len(table)
    assert not table.duplicated(
        [c for c in table.columns if c not in ("mean", "std", "note")]
    ).any()
