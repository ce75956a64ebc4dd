"""Exp. 5: the block it measures against autodiff, what a protocol may change, and claims that can
fail."""

from dataclasses import replace
from statistics import fmean, pstdev

import pandas as pd
import pytest
import torch

from experiments.dag.exp5.settings import PAIRS
from experiments.dag.exp5.values import authors_own, target_variance
from experiments.dag.protocol.measure import block_row
from experiments.printed import statements
from runner.contract import Context, SettingError, analyse
from runner.curvature import split_blocks
from runner.data.images import load
from runner.run.config.experiment import preview
from runner.run.config.jobs import build_job
from runner.stats.tables import chosen
from runner.training.initial import build
from runner.training.trained import train_regression
from tests.errors import refusal
from tests.experiments.dag.inter_layer_tables import measured
from tests.experiments.tables import changed, check, claims_of

PAIR = PAIRS["attention"]
SMALL = ["dataset.train=64", "dataset.validation=24", "dataset.tokens=3", "dataset.width=4"]
SMALL += ["training.batch=32", "training.epochs=2", "metric.examples=8", "metric.subsamples=2"]


@pytest.fixture(scope="module")
def experiment():
    return build_job(["experiment=exp5_attention", *SMALL]).experiment


@pytest.fixture(scope="module")
def tables(experiment):
    cells = [c for c in experiment.cells() if c.params["protocol"] in ("recovered", "described")]
    return measured(experiment, (0, 1, 2), cells)


def dense_query_key(network, x, y):
    """∂²L/∂e_q ∂e_k of the mean squared error, example by example, and its Gauss–Newton part."""
    stages = network.stages

    def output(e, one):
        q, k = (stages[name](one) + e[i] for i, name in enumerate("qk"))
        return stages["head"](stages["attend"](q[None], k[None], stages["v"](one)[None])).squeeze()

    total, gauss_newton = 0, 0
    for one, target in zip(x, y, strict=True):
        e = torch.zeros(2, *one.shape, dtype=one.dtype)
        hessian = torch.func.hessian(lambda e, one=one, t=target: (output(e, one) - t) ** 2)(e)
        jacobian = torch.func.jacrev(lambda e, one=one: output(e, one))(e).flatten(1)
        size = one.numel()
        total = total + hessian[0, :, :, 1].reshape(size, size) / len(x)
        gauss_newton = gauss_newton + 2 * torch.outer(jacobian[0], jacobian[1]) / len(x)
    return total.detach(), gauss_newton.detach()


def test_block_is_that_of_autodiff(experiment):
    settings = (experiment.network_settings("attention"), *experiment.under("recovered"))
    trained = train_regression(*settings, Context(seed=3))
    network = trained.at("final").double()
    x, y = (t.double() for t in trained.data.test.first(8))
    found = block_row(split_blocks(network.to_dag(trained.loss), x, y, PAIR), PAIR, "full")
    total, gauss_newton = dense_query_key(network, x, y)
    assert found["full"] == pytest.approx(float(total.norm()), rel=1e-10)
    assert found["gn"] == pytest.approx(float(gauss_newton.norm()), rel=1e-10)
    assert found["tensor"] == pytest.approx(float((total - gauss_newton).norm()), rel=1e-9)
    assert found["gap"] == pytest.approx(found["tensor"] / found["gn"], rel=1e-6)


def test_tables(experiment, tables):
    blocks, networks = tables["blocks"], tables["networks"]
    sets = blocks.groupby(["protocol", "network", "seed", "checkpoint"]).size()
    assert (sets["recovered"] == 3).all() and (sets["described"] == 1).all()
    assert (blocks[blocks["network"] != "attention"]["tensor"] == 0).all()
    assert networks["value_path"].notna().sum() == (networks["network"] == "attention").sum()
    assert len(tables["history"]) == 2 * 3 * 3 * (2 + 1)
    analysis = analyse(experiment, tables)
    metrics = set(analysis.measured()["metric"])
    assert metrics == {"frob_full", "frob_gn", "frob_tensor", "gap", "test_mse"}
    assert analysis.figures() and analysis.statistics() and len(tables["certificate"])
    assert set(claims_of(experiment, tables)) == set(statements("exp5_attention"))


def test_claims_follow_the_tables(experiment, tables):
    def judged(blocks, **expected):
        check(experiment, tables | {"blocks": blocks}, **expected)

    blocks = tables["blocks"]
    small = "size of attention; size of relu_mlp"  # networks smaller than the paper's
    judged(blocks, true_by_construction="H5.2; separation", refuted=small)
    judged(blocks.assign(gap=blocks["gap"] + 1e-3, tensor=1e-3), refuted="H5.2")
    wide = changed(blocks, {"network": "attention"}, gap=50 + blocks["seed"])
    judged(wide, confirmed="H5.1")
    judged(wide.assign(gap=wide["gap"] / 1e3), refuted="H5.1")
    judged(changed(wide, {"network": "flat_mlp"}, tensor=1e-9, gap=1e-8), confirmed="separation")


def test_a_network_that_loses_to_a_constant_has_not_converged(experiment, tables):
    networks = tables["networks"]
    for share, verdict in ((0.5, "confirmed"), (2.0, "refuted")):
        loss = share * target_variance(experiment.under("recovered")[0])
        rows = changed(networks, {"protocol": "recovered", "checkpoint": "final"}, test_loss=loss)
        check(experiment, tables | {"networks": rows}, **{verdict: "no training failure"})


@pytest.mark.parametrize("protocol", ["recovered", "described"])
def test_the_best_constant_has_the_variance_of_the_targets(protocol):
    data, _ = preview("exp5_attention").under(protocol)
    many = replace(data, train=100_000, validation=1)
    targets = load(many, Context(seed=1)).train.targets
    assert target_variance(data) == pytest.approx(float(targets.var()), rel=0.02)


def test_protocols_change_what_they_name(experiment):
    data, training = experiment.under("described")
    assert (data.response, data.standardised, training.rate) == ("tanh", True, 1e-3)
    assert experiment.under("small_noise")[0].noise == 0.01
    for bad in ({"training.ratee": 1.0}, {"training.rate": "high"}, {"dataset.train": 0}):
        protocols = {**experiment.protocols, "bad": bad}
        with pytest.raises(SettingError):
            replace(experiment, protocol=["bad"], protocols=protocols).cells()
    with refusal("recoverd", SettingError):
        replace(experiment, protocol=["recoverd"])
    with refusal("did you mean flat_mlp", SettingError):
        replace(experiment, control={"recovered": "flat_mpl"})


def test_untrained_attention_has_every_printed_digit():
    """Table 7 at init: the authors' inputs, targets and networks, seeds 42 to 46."""
    full, gauss_newton, gap, loss = [], [], [], []
    experiment = preview("exp5_attention")
    dataset, _ = experiment.under("recovered")
    for seed in range(42, 47):
        data = load(dataset, Context(seed=seed)).validation
        network = build(experiment.network_settings("attention"), seed)
        blocks = split_blocks(network.to_dag("mse"), *data.first(64), PAIR)
        full.append(float(blocks.total[PAIR].norm()))
        gauss_newton.append(float(blocks.gauss_newton[PAIR].norm()))
        gap.append(float(blocks.tensor[PAIR].norm()) / gauss_newton[-1])
        with torch.no_grad():
            loss.append(float((network(data.inputs).squeeze(-1) - data.targets).square().mean()))
    assert f"{fmean(full):.1e}" == "9.2e-03" and f"{fmean(gauss_newton):.1e}" == "1.7e-04"
    assert f"{fmean(gap):.1f} {pstdev(gap):.1f}" == "57.5 16.4" and f"{fmean(loss):.2f}" == "0.99"


def test_claims_need_the_authors_own_networks(tables):
    assert not authors_own(tables)  # seeds 0 to 2
    one = chosen(tables["origin"], protocol="recovered", network="attention", seed=0)
    one = one.assign(initial="published", order="published")
    five = pd.concat([one.assign(seed=seed) for seed in range(42, 47)])
    assert authors_own({"origin": five})
    assert not authors_own({"origin": five[:4]})
    assert not authors_own({"origin": five.assign(inputs="named")})
