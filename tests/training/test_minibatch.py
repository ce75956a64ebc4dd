"""Minibatch training against plain torch, and its promises: determinism, resume, status of a
diverged run."""

import math
import resource
import sys

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from runner.data.images import Split
from runner.kinds.training import MinibatchTraining
from runner.models.architectures import attention_regressor, diamond, mlp
from runner.models.network import Network, Stage, default_init
from runner.models.resnet import ConvBlock, PoolHead
from runner.training import minibatch
from runner.training.allocator import keep_freed_memory
from runner.training.minibatch import CHECKPOINTS, Training, evaluate, flatten_parameters, train
from runner.training.order import LoaderAugment, StreamAugment
from tests.draws import seeded
from tests.errors import refusal
from tests.training.conftest import Killed, Store


def pixels(count, seed, flat=True):
    g = seeded(seed)
    labels = torch.randint(4, (count,), generator=g)
    images = torch.randint(0, 256, (count, 3, 4, 4), generator=g, dtype=torch.uint8) // 2
    images += (labels * 30).to(torch.uint8)[:, None, None, None]  # something to learn
    return Split(images, labels, flat=flat)


def sequences(count, seed):
    g = seeded(seed)
    return Split(torch.randn(count, 3, 4, generator=g), torch.randn(count, generator=g))


FLAT = TRAIN, TEST = pixels(70, 1), pixels(30, 2)
IMAGES = pixels(70, 1, flat=False), pixels(30, 2, flat=False)


def small(**kwargs):
    return mlp(inputs=48, outputs=4, depth=2, width=6, generator=seeded(3), **kwargs)


def convolutional():
    with default_init(seeded(3)):
        block, head = ConvBlock(3, 6, 2, "silu", skip=True), PoolHead(6, 4)
    return Network([Stage("block", ("input",), block), Stage("head", ("block",), head)], ["block"])


SETTINGS = ("optimizer", "rate", "weight_decay", "clip", "epochs", "schedule")


def fit(network=None, data=FLAT, order=7, batch=16, **about):
    """In batches of 16, in the order of a seed."""
    chosen = {name: about.pop(name) for name in SETTINGS if name in about}
    settings = MinibatchTraining(batch=batch, **chosen)
    return train(network or small(), *data, settings, order=seeded(order), **about)


def kill_at(epoch):
    def progress(done, total, note):
        if done == epoch:
            raise Killed

    return progress


def plain_torch(network, optimizer, rate, epochs, clip):
    """The textbook loop: autograd, one tensor at a time, torch's own clipping and schedule."""
    order, parameters = seeded(7), list(network.parameters())
    if optimizer == "sgd":
        opt = torch.optim.SGD(parameters, rate, momentum=0.9, weight_decay=1e-2)
    else:
        opt = torch.optim.Adam(parameters, rate, weight_decay=1e-2)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs)
    x = (TRAIN.inputs.float() / 255 - 0.5) / 0.5
    network.train()
    for _ in range(epochs):
        for index in torch.randperm(len(x), generator=order).split(16):
            opt.zero_grad()
            output = network(x[index].flatten(1))
            nn.functional.cross_entropy(output, TRAIN.targets[index]).backward()
            nn.utils.clip_grad_norm_(parameters, clip)
            opt.step()
        cosine.step()
    return network.state_dict()


@pytest.mark.parametrize("optimizer, rate", [("sgd", 0.05), ("adam", 0.01)])
@pytest.mark.parametrize("spectral", [False, True], ids=["plain", "spectral"])
def test_agrees_with_the_textbook_loop(optimizer, rate, spectral):
    make = {"norm": not spectral, "spectral": spectral}
    settings = {"optimizer": optimizer, "rate": rate, "epochs": 4, "clip": 0.5}
    result = fit(small(**make), weight_decay=1e-2, **settings)
    assert result.status == "ok"
    for name, value in plain_torch(small(**make), **settings).items():
        assert_close(result.states["final"][name], value, rtol=1e-3, atol=1e-5)


def test_learns_and_keeps_checkpoints():
    result = fit(rate=0.1, epochs=7)
    assert tuple(result.states) == CHECKPOINTS
    init, mid, final = (result.states[name] for name in CHECKPOINTS)
    assert_close(init, small().state_dict(), rtol=0, atol=0)
    assert any((mid[name] != value).any() for name, value in final.items())
    history = result.history
    assert history["epoch"] == list(range(8))
    assert math.isnan(history["train_loss"][0])
    assert history["train_loss"][-1] < history["train_loss"][1]
    assert history["rate"][1] == 0.1
    assert history["rate"][-1] == pytest.approx(0.1 * (1 + math.cos(math.pi * 6 / 7)) / 2)
    network = result.load_into(small(), "final")
    assert not network.training
    scores = evaluate(network, TEST, "cross_entropy")
    assert scores == (history["test_loss"][-1], history["test_accuracy"][-1])


def same_bits(a, b):
    assert a.status == b.status
    assert repr(a.history) == repr(b.history)
    for name in CHECKPOINTS:
        assert_close(a.states[name], b.states[name], rtol=0, atol=0)


ADAM = {"optimizer": "adam", "rate": 1e-3}
RESUMED = {
    "sgd": (small, FLAT, {}),
    "spectral-adam": (lambda: small(norm=False, spectral=True), FLAT, ADAM),
    "diamond": (
        lambda: diamond(inputs=48, outputs=4, width=5, merge="cat", generator=seeded(1)),
        FLAT,
        {"schedule": "constant"},
    ),
    "attention": (
        lambda: attention_regressor(width=4, generator=seeded(1)),
        (sequences(40, 1), sequences(20, 3)),
        {"loss": "mse", **ADAM},
    ),
    "augmented": (convolutional, IMAGES, {}),
}


@pytest.mark.parametrize("case", RESUMED)
def test_killed_and_resumed_is_bitwise_the_same(case):
    make, data, settings = RESUMED[case]

    def run(store=None, progress=None, order=7):
        augment = seeded(8) if case == "augmented" else None
        about = {"epochs": 8, "save_every": 2, "augment": augment, **settings}
        return fit(make(), data, order, checkpoints=store, progress=progress, **about)

    whole, store, done = run(), Store(), []
    for epoch in (3, 5, 8):
        with pytest.raises(Killed):
            run(store, kill_at(epoch))
    same_bits(whole, run(store, lambda d, *_: done.append(d)))
    assert done == [7, 8]  # it went on from epoch 6, it did not start again
    same_bits(whole, run(store, kill_at(1), order=99))  # finished: it is loaded, nothing runs


def test_augmentation_changes_a_training():
    runs = (fit(convolutional(), IMAGES, epochs=1, augment=a) for a in (None, seeded(8)))
    still, moved = (run.states["final"] for run in runs)
    assert not all(torch.equal(value, moved[name]) for name, value in still.items())


def test_a_training_stops_at_a_checkpoint_and_continues_from_it():
    settings = {"epochs": 7, "save_every": 5}
    whole, store = fit(**settings), Store()
    half = fit(checkpoints=store, until="mid", **settings)
    assert list(half.states) == ["init", "mid"] and half.history["epoch"] == [0, 1, 2, 3]
    again = fit(checkpoints=store, until="mid", progress=kill_at(1), **settings)
    assert half.history["test_loss"] == again.history["test_loss"]
    same_bits(whole, fit(checkpoints=store, **settings))


def test_a_saved_state_does_not_depend_on_the_order_of_a_device():
    """Weights of convolutions lie with channels last in memory; states on disk have the parameters'
    own order."""
    network = convolutional()
    own = torch.cat([p.detach().reshape(-1) for p in network.parameters()])
    flat = flatten_parameters(network).detach()
    assert not torch.equal(flat, own)
    assert torch.equal(minibatch.plain_order(flat, network), own)
    assert torch.equal(minibatch.flat_order(own, network), flat)


def test_divergence_is_a_status():
    store = Store()
    result = fit(small(norm=False), rate=1e20, clip=1e30, epochs=5, checkpoints=store)
    assert result.status.startswith("diverged in epoch")
    assert "init" in result.states and "final" not in result.states
    with refusal("diverged"):
        result.load_into(small(norm=False), "final")
    assert Training(**store.load("result")).status == result.status


def test_an_unknown_checkpoint_is_refused():
    with refusal("until"):
        fit(until="last")


def test_augmentation_moves_and_mirrors():
    """Every offset and both orientations occur, and nothing else."""
    image = torch.arange(3 * 6 * 6, dtype=torch.uint8).view(3, 6, 6) + 1
    found = StreamAugment(seeded(1), padding=1)(image.repeat(400, 1, 1, 1))
    padded = nn.functional.pad(image, [1] * 4)
    crops = padded.unfold(1, 6, 1).unfold(2, 6, 1).permute(1, 2, 0, 3, 4).flatten(0, 1)
    expected = torch.cat([crops, crops.flip(-1)])
    assert torch.equal(found.unique(dim=0), expected.unique(dim=0))


@pytest.mark.skipif(sys.platform != "linux", reason="counts page faults of glibc's allocator")
def test_freed_memory_is_kept_for_the_next_step():
    def faults():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        _ = [torch.zeros(1 << 20) for _ in range(16)]  # 64 MiB, freed on return
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    if not keep_freed_memory():
        pytest.skip("no mallopt in this C library")
    assert min(faults() for _ in range(5)) < 1000  # of 16,384 pages


@pytest.mark.parametrize("padding", [1, 4, 7])
def test_crops_and_flips_are_those_drawn_one_by_one(padding):
    one, together = seeded(5), seeded(5)
    for count in (1, 7, 200):
        rows = []
        for _ in range(count):
            top, left = (int(torch.randint(2 * padding + 1, (1,), generator=one)) for _ in range(2))
            rows.append((top, left, bool(torch.rand(1, generator=one) < 0.5)))
        columns = [t.tolist() for t in LoaderAugment(together, padding).draws(count)]
        assert list(zip(*columns, strict=True)) == rows
    assert torch.equal(one.get_state(), together.get_state())
