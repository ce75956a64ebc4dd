import math
import re

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, Dataset

from experiments.dag.exp6.measure import by_distance, calibrated, engine_rows, published_rows
from experiments.dag.exp6.values import devices
from runner.contract import analyse
from runner.data.images import Split
from runner.models.network import Network, Stage
from runner.models.resnet import ConvBlock, PoolHead, resnet18
from runner.run.config.experiment import preview
from runner.run.config.jobs import build_job
from runner.stats.tables import chosen
from runner.training.initial import published_network
from runner.training.order import LoaderAugment, LoaderOrder
from tests.draws import seeded
from tests.experiments.dag.inter_layer_tables import (
    CHECKPOINTS,
    SEEDS,
    complete,
    end_to_end,
    kept,
    scores,
)
from tests.experiments.tables import changed, check, claims_of, grid

PAPER = preview("exp6_resnet18")


def own_name(name):
    """torchvision's name of a tensor as this project's."""
    name = re.sub("^conv1", "stem.conv", name)
    name = re.sub("^fc", "head.linear", name)
    return "stages." + name.replace(".downsample.", ".shortcut.")


def standard_draws(seed):
    """Weights of ResNet-18 as the standard construction draws them: downsampling made before its
    blocks, all defaults first, then every convolution anew in the order of the modules."""
    torch.manual_seed(seed)
    conv = {"conv1": nn.Conv2d(3, 64, 7, bias=False)}
    channels = 64
    for i, width in enumerate((64, 128, 256, 512), 1):
        down = nn.Conv2d(channels, width, 1, bias=False) if i > 1 else None
        for block in (0, 1):
            conv[f"layer{i}.{block}.conv1"] = nn.Conv2d(channels, width, 3, bias=False)
            conv[f"layer{i}.{block}.conv2"] = nn.Conv2d(width, width, 3, bias=False)
            if down is not None and block == 0:
                conv[f"layer{i}.0.downsample.0"] = down
            channels = width
    head = nn.Linear(512, 10)
    for module in conv.values():
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    weights = {f"{name}.weight": module.weight for name, module in conv.items()}
    return weights | {"fc.weight": head.weight, "fc.bias": head.bias}


def test_the_published_network_is_the_standard_construction():
    network, stream = published_network(lambda: resnet18(), 43)
    expected, state = standard_draws(43), network.state_dict()
    assert torch.equal(stream.get_state(), torch.get_rng_state())
    for name, value in expected.items():
        assert torch.equal(state[own_name(name)], value), name
    plain, _ = published_network(lambda: resnet18(skip=False, activation="silu"), 43)
    kept = plain.state_dict()  # the twin: the same weights where it has them
    assert all(torch.equal(value, state[name]) for name, value in kept.items())
    assert network.parameter_count - plain.parameter_count == 11_181_642 - 11_007_818


class Pictures(Dataset):
    """Reads an image as torchvision's RandomCrop(4, padding=4) and RandomHorizontalFlip would draw
    for it."""

    def __init__(self, pixels):
        self.pixels = pixels

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, i):
        padded = nn.functional.pad(self.pixels[i], [4] * 4)
        top = int(torch.randint(0, 9, size=(1,)).item())
        left = int(torch.randint(0, 9, size=(1,)).item())
        crop = padded[:, top : top + 4, left : left + 4]
        return i, crop.flip(-1) if torch.rand(1) < 0.5 else crop


def test_order_and_augmentation_are_those_of_a_loader_without_workers():
    pixels = torch.randint(0, 256, (20, 3, 4, 4), generator=seeded(1), dtype=torch.uint8)
    torch.manual_seed(42)
    stream = torch.Generator()
    stream.set_state(torch.get_rng_state())
    order, augment = LoaderOrder(stream), LoaderAugment(stream)
    for _ in range(2):
        batches = list(DataLoader(Pictures(pixels), batch_size=8, shuffle=True))
        index = order.permutation(20)
        assert torch.equal(index, torch.cat([i for i, _ in batches]))
        for part, (_, expected) in zip(index.split(8), batches, strict=True):
            assert torch.equal(augment(pixels[part]), expected)


def small(activation="silu"):
    torch.manual_seed(3)
    first = Stage("a", ("input",), ConvBlock(3, 4, 2, activation))
    second = Stage("b", ("a",), ConvBlock(4, 5, 2, activation))
    head = Stage("head", ("b",), PoolHead(5, 3))
    return Network([first, second, head], ["a", "b"]).eval()


def test_engine_and_published_estimates_agree():
    x = torch.randn(6, 3, 8, 8, generator=seeded(1))
    data = (x, torch.randint(0, 3, (6,), generator=seeded(2)), ("a", "b"))
    for activation in ("relu", "silu"):
        dag = small(activation).to_dag()
        exact = engine_rows(dag, *data, 0.05, 1 << 30, seeded(4))
        estimate = published_rows(dag, *data, 300, 20, seeded(5))
        for e, p in zip(exact, estimate, strict=True):
            assert (e["v"], e["w"], e["distance"]) == (p["v"], p["w"], p["distance"])
            for name in ("R", "C", "D", "gn", "tensor"):
                assert p[name] == pytest.approx(e[name], rel=0.25, abs=1e-6 * e["R"])
        assert (max(e["tensor"] for e in exact) == 0) == (activation == "relu")
    assert [row["pairs"] for row in by_distance(exact)] == [2, 1]
    assert all(math.isnan(r["D"]) for r in published_rows(dag, *data, 4, 0, seeded(1)))


def test_calibrated_statistics_are_those_of_the_images():
    network = small()
    pixels = torch.randint(0, 256, (40, 3, 8, 8), generator=seeded(1), dtype=torch.uint8)
    split = Split(pixels, torch.zeros(40, dtype=torch.long), flat=False)
    own, norm = network.stages["a"], calibrated(network, split, 32).stages["a"].norm1
    with torch.no_grad():
        z = own.conv1(split.first(32)[0])
    assert_close(norm.running_mean, z.mean((0, 2, 3)))
    assert_close(norm.running_var, z.transpose(0, 1).flatten(1).var(1))
    assert float(own.norm1.running_var.min()) == 1  # the network itself is left alone


@kept
def tables(decay=1.0, gap=0.3, relu_gap=1e-7, full=False, last=0.0):
    """R = e^(−decay d), C the same, a gap of the same kind at every distance but the last."""
    checkpoints = CHECKPOINTS if full else ("init", "final")
    archs = ("resnet18", "plain_resnet18")
    networks = grid(activation=("relu", "silu"), arch=archs, checkpoint=checkpoints, seed=SEEDS)
    kinds = grid(statistics=("running", "calibrated"), estimator=("engine", "published"))[:3]
    rows = networks.merge(kinds, how="cross").merge(grid(distance=range(5)), how="cross")
    d = rows["distance"]
    r = np.exp(-decay * d * (1 + (rows["arch"] != "resnet18")) + 0.001 * rows["seed"])
    rows = rows.assign(R=r, C=r, D=2.0, gn=1.0, tensor=(gap * (5 - d) / 5).where(d < 4, last))
    distances = changed(rows, {"activation": "relu"}, tensor=relu_gap)
    return {
        "pairs": distances.assign(v="v" + d.astype(str), w="w"),
        "distances": distances,
        "networks": networks.assign(statistics="running", test_accuracy=0.8, status="ok"),
    }


def test_every_statement_and_published_value_is_found():
    complete(PAPER, "exp6_resnet18", tables(full=True), 244)
    assert set(claims_of(PAPER, {"networks": pd.DataFrame()})) == set(PAPER.says)


def test_claims():
    held, broken = tables(full=True), tables(decay=-0.5, gap=1e-7, relu_gap=1e-3, full=True)
    names = "C monotone; gap of ReLU; gap of ReLU, final; gap of SiLU; skips slow the decay"
    names += "; skips stabilise R"
    # e^8, in both activations
    failed = "decay of the plain ReLU network; stronger contrast for SiLU"
    check(PAPER, held, confirmed=f"{names}; gap before the head; gap falls", refuted=failed)
    check(PAPER, broken, refuted=names)
    check(PAPER, tables(last=1e-3), refuted="gap before the head")
    d, plain = held["distances"], {"activation": "silu", "arch": "plain_resnet18"}
    for power, expected in ((2.0, "confirmed"), (0.6, "refuted")):
        distances = changed(d, plain, R=d["R"] ** power)
        check(PAPER, held | {"distances": distances}, **{expected: "stronger contrast for SiLU"})
    hit = tables(decay=math.log(627) / 8)  # √627 = 25.04
    names = "decay of the plain ReLU network; decay of the SiLU ResNet"
    check(PAPER, hit, confirmed=names)
    check(PAPER, hit, refuted="decay of the ReLU ResNet; decay of the plain SiLU network")


def test_what_is_said_of_every_checkpoint_is_open_while_one_is_not_measured():
    # the one is proved for every network
    both = "gap of ReLU; gap of SiLU"
    check(PAPER, tables(), confirmed="gap before the head", inconclusive=both)
    check(PAPER, tables(), not_run="gap of ReLU | mid; gap of SiLU | mid")
    check(PAPER, tables(gap=1e-7, relu_gap=1e-3, last=1e-3), refuted=both)


@pytest.mark.slow
def test_the_gap_through_training():
    grows = "plain gap grows in training"
    falls = "plain gap declines in training; ResNet gap falls in training"
    found = tables(gap=0.2)
    d = found["distances"]
    for factor, held, failed in ((3.0, grows, falls), (1 / 3, falls, grows)):
        moved = changed(d, {"checkpoint": "final"}, tensor=factor * d["tensor"])
        check(PAPER, found | {"distances": moved}, confirmed=held, refuted=failed)
    name = "gap of the SiLU ResNet at init"
    check(PAPER, tables(gap=1.0), refuted=name)
    half = changed(d, {"activation": "silu"}, tensor=0.5)
    check(PAPER, found | {"distances": half}, confirmed=name)


def test_negligible_blocks_are_those_below_the_threshold():
    check(PAPER, tables(), not_run="negligible blocks")
    faint = tables(decay=7.0)
    check(PAPER, faint, confirmed="negligible blocks")
    faint["pairs"] = faint["pairs"].assign(R=1e-7)
    check(PAPER, faint, refuted="negligible blocks")


@pytest.mark.parametrize("factor, mean", [(0.9, 2.0), (1.1, 26.0)])
def test_published_averages_of_d_leave_out_negligible_blocks(factor, mean):
    found, size = tables(full=True), factor * PAPER.negligible**0.5
    faint = found["pairs"].assign(R=size, D=50.0)
    found["pairs"] = pd.concat([found["pairs"], faint])
    assert set(analyse(PAPER, found).measured().query("metric == 'D'")["value"]) == {mean}


def test_the_stable_rank_as_described_is_that_without_power_steps():
    found = tables(full=True)
    pairs = found["pairs"]
    exact = pairs["estimator"] == "engine"
    found["pairs"] = pairs.assign(D=pairs["D"].mask(exact, 3.0))
    rows = scores(analyse(PAPER, found), "exp6_resnet18").query("metric == 'D'")
    described = rows["way"] == "as described"
    assert set(rows[described].measured_mean) == {3.0} and described.sum() == 20
    assert set(rows[~described].measured_mean) == {2.0} and set(rows.n) == {5}


@pytest.mark.parametrize("base, verdict", [(0.8, "confirmed"), (1.2, "refuted")])
def test_the_coupling_of_calibrated_networks_is_a_variant(base, verdict):
    found = tables(full=True)
    d = found["distances"]
    calibrated = d["C"].mask(d["statistics"] == "calibrated", base ** d["distance"])
    made = claims_of(PAPER, found | {"distances": d.assign(C=calibrated)})["C monotone"]
    assert made.verdict == "confirmed"
    assert ("refuted" in made.variants.values()) == (verdict == "refuted")


def test_the_figure_of_table_8_shows_the_final_checkpoint_alone():
    assert "table8_gap" in analyse(PAPER, tables(relu_gap=0.0)).figures()
    for found in (tables(relu_gap=0.0, gap=0.0), tables(relu_gap=0.0)):
        init = {name: chosen(table, checkpoint="init") for name, table in found.items()}
        assert "table8_gap" not in analyse(PAPER, init).figures()


def test_cells_at_init_cost_no_training():
    cells = {tuple(c.params.values()): c.seconds for c in PAPER.cells()}
    assert len(cells) == 12 and cells["relu", "resnet18", "init"] < 300
    mid, final = (cells["relu", "resnet18", at] for at in ("mid", "final"))
    assert mid == final > 3_000  # half of a training each


@pytest.mark.slow
def test_end_to_end_without_a_store():
    words = ["experiment=exp6_resnet18", "profile=quick", "experiment.activation=[relu]"]
    words += ["dataset.train=16", "dataset.test=8", "training.batch=8", "training.epochs=1"]
    words += ["metric.examples=1", "experiment.probes=2", "experiment.power_steps=1"]
    words += ["experiment.calibration=8"]
    found = end_to_end(build_job(words).experiment, (42, 43))
    assert set(found["distances"]["statistics"]) == {"running", "calibrated"}
    assert found["origin"]["initial"].tolist() == ["published"] * 4
    assert set(found["networks"]["parameters"]) == {11_181_642}


def test_the_notes_name_the_device_that_trained():
    origin = pd.DataFrame({"seed": [44, 45, 45], "checkpoint": ["final", "half", "final"]})
    assert devices(origin) == []
    trained = origin.assign(trained_on=[None, "cpu; GPU", "GPU"])
    assert devices(trained) == ["The networks of seed 45 were trained on GPU."]
