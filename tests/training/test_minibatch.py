"""Minibatch training against plain torch, and its promises: determinism, resume, status of a
diverged run; and steps on fixed memory against the plain loop: the same bytes, captured or not,
whatever is drawn."""

import math
import resource
import sys

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from runner.data.images import Split
from runner.models.architectures import attention_regressor, diamond, mlp
from runner.models.network import Network, Stage, default_init
from runner.models.resnet import ConvBlock, PoolHead
from runner.training import minibatch
from runner.training.allocator import keep_freed_memory
from runner.training.minibatch import CHECKPOINTS, Training, evaluate, flatten_parameters, train
from runner.training.order import LoaderAugment, LoaderOrder
from runner.training.steps import WARM_UP, Steps, StreamAugment, usable
from tests.draws import seeded
from tests.errors import refusal
from tests.training.conftest import Killed, Store


def pixels(count, seed, classes=4, flat=True):
    g = seeded(seed)
    labels = torch.randint(classes, (count,), generator=g)
    images = torch.randint(0, 256, (count, 3, 4, 4), generator=g, dtype=torch.uint8) // 2
    images += (labels * 30).to(torch.uint8)[:, None, None, None]  # something to learn
    return Split(images, labels, flat=flat)


TRAIN, TEST = pixels(70, 1), pixels(30, 2)


def small(**kwargs):
    return mlp(inputs=48, outputs=4, depth=2, width=6, generator=seeded(3), **kwargs)


def trained(network=None, **settings):
    return train(network or small(), TRAIN, TEST, order=seeded(7), **settings)


def kill_at(epoch):
    def progress(done, total, note):
        if done == epoch:
            raise Killed

    return progress


def plain_torch(network, optimizer, rate, epochs, clip, batch=16):
    """The textbook loop: autograd, one tensor at a time, torch's own clipping and schedule."""
    order = seeded(7)
    parameters = list(network.parameters())
    if optimizer == "sgd":
        opt = torch.optim.SGD(parameters, rate, momentum=0.9, weight_decay=1e-2)
    else:
        opt = torch.optim.Adam(parameters, rate, weight_decay=1e-2)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs)
    x = (TRAIN.inputs.float() / 255 - 0.5) / 0.5
    network.train()
    for _ in range(epochs):
        for index in torch.randperm(len(x), generator=order).split(batch):
            opt.zero_grad()
            nn.functional.cross_entropy(
                network(x[index].flatten(1)), TRAIN.targets[index]
            ).backward()
            nn.utils.clip_grad_norm_(parameters, clip)
            opt.step()
        cosine.step()
    return network


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("spectral", [False, True], ids=["plain", "spectral"])
def test_agrees_with_the_textbook_loop(optimizer, spectral):
    make = {"norm": not spectral, "spectral": spectral}
    rate = 0.05 if optimizer == "sgd" else 0.01
    expected = plain_torch(small(**make), optimizer, rate, 4, clip=0.5)
    settings = {
        "optimizer": optimizer,
        "rate": rate,
        "weight_decay": 1e-2,
        "clip": 0.5,
        "batch": 16,
        "epochs": 4,
    }
    result = trained(small(**make), **settings)
    assert result.status == "ok"
    for name, value in expected.state_dict().items():
        assert_close(result.states["final"][name], value, rtol=1e-3, atol=1e-5)


def test_learns_and_keeps_checkpoints():
    network = small()
    start = {k: v.clone() for k, v in network.state_dict().items()}
    result = trained(network, rate=0.1, batch=16, epochs=7)
    assert tuple(result.states) == CHECKPOINTS
    assert_close(result.states["init"], start, rtol=0, atol=0)
    history = result.history
    assert history["epoch"] == list(range(8))
    assert math.isnan(history["train_loss"][0])
    assert history["train_loss"][-1] < history["train_loss"][1]
    assert history["rate"][1] == 0.1
    assert history["rate"][-1] == pytest.approx(0.1 * (1 + math.cos(math.pi * 6 / 7)) / 2)
    assert any((result.states["mid"][k] != result.states["final"][k]).any() for k in start)
    final = result.load_into(small(), "final")
    assert not final.training
    loss, accuracy = evaluate(final, TEST, "cross_entropy")
    assert (loss, accuracy) == (history["test_loss"][-1], history["test_accuracy"][-1])


def same_bits(a, b):
    assert a.status == b.status
    assert repr(a.history) == repr(b.history)
    for name in CHECKPOINTS:
        for key, value in a.states[name].items():
            assert torch.equal(value, b.states[name][key]), (name, key)


def convolutional():
    with default_init(seeded(3)):
        block, head = ConvBlock(3, 6, 2, "silu", skip=True), PoolHead(6, 4)
    return Network([Stage("block", ("input",), block), Stage("head", ("block",), head)], ["block"])


def sequences(count, seed):
    return Split(
        torch.randn(count, 3, 4, generator=seeded(seed)),
        torch.randn(count, generator=seeded(seed + 1)),
    )


ADAM = {"optimizer": "adam", "rate": 1e-3}
RESUMED = {
    "sgd": (small, (TRAIN, TEST), {}),
    "spectral-adam": (lambda: small(norm=False, spectral=True), (TRAIN, TEST), ADAM),
    "diamond": (
        lambda: diamond(inputs=48, outputs=4, width=5, merge="cat", generator=seeded(1)),
        (TRAIN, TEST),
        {"schedule": "constant"},
    ),
    "attention": (
        lambda: attention_regressor(width=4, generator=seeded(1)),
        (sequences(40, 1), sequences(20, 3)),
        {"loss": "mse", **ADAM},
    ),
    "augmented": (convolutional, (pixels(40, 1, flat=False),) * 2, {}),
}


@pytest.mark.parametrize("case", RESUMED)
def test_killed_and_resumed_is_bitwise_the_same(case):
    make, data, settings = RESUMED[case]

    def run(store=None, progress=None, order=7, plain=False):
        augmented = case == "augmented" and not plain
        streams = {"order": seeded(order), "augment": seeded(8) if augmented else None}
        about = {
            "epochs": 8,
            "batch": 16,
            "save_every": 2,
            "checkpoints": store,
            "progress": progress,
        }
        return train(make(), *data, **{**about, **settings, **streams})

    whole, store, done = run(), Store(), []
    for epoch in (3, 5, 8):
        with pytest.raises(Killed):
            run(store, kill_at(epoch))
    same_bits(whole, run(store, lambda d, *_: done.append(d)))
    assert done == [7, 8]  # it went on from epoch 6, it did not start again
    same_bits(
        whole, run(store, kill_at(1), order=99)
    )  # a finished training is loaded, nothing runs
    if case == "augmented":
        still = run(plain=True).states["final"]
        assert any(
            not torch.equal(value, whole.states["final"][name]) for name, value in still.items()
        )


def test_a_training_stops_at_a_checkpoint_and_continues_from_it():
    settings = {"epochs": 7, "batch": 16, "save_every": 5}
    whole, store = trained(**settings), Store()
    half = trained(checkpoints=store, until="mid", **settings)
    assert list(half.states) == ["init", "mid"] and half.history["epoch"] == [0, 1, 2, 3]
    again = train(
        small(),
        TRAIN,
        TEST,
        order=seeded(7),
        checkpoints=store,
        until="mid",
        progress=kill_at(1),
        **settings,
    )
    assert half.history["test_loss"] == again.history["test_loss"]
    same_bits(whole, trained(checkpoints=store, **settings))
    with refusal("until: expected one of"):
        trained(until="last", **settings)


def test_a_saved_state_does_not_depend_on_the_order_of_a_device():
    """Weights of convolutions lie with channels last in memory; states on disk have the parameters'
    own order."""
    network = convolutional()
    own = torch.cat([p.detach().reshape(-1) for p in network.parameters()])
    flat = flatten_parameters(network).detach()
    assert not torch.equal(flat, own)
    assert torch.equal(minibatch.plain_order(flat, network), own)
    assert torch.equal(minibatch.flat_order(own, network), flat)


def test_data_order_comes_from_its_stream():
    def final(order):
        return train(small(), TRAIN, TEST, order=seeded(order), epochs=1, batch=16).states["final"]

    torch.rand(3)  # the global stream does not matter
    a, b, c = final(7), final(7), final(8)
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert any(not torch.equal(a[k], c[k]) for k in a)


def test_divergence_is_a_status():
    store = Store()
    result = train(
        small(norm=False),
        TRAIN,
        TEST,
        order=seeded(7),
        rate=1e20,
        clip=1e30,
        epochs=5,
        batch=16,
        checkpoints=store,
    )
    assert result.status.startswith("diverged in epoch")
    assert "init" in result.states and "final" not in result.states
    with refusal("diverged"):
        result.load_into(small(norm=False), "final")
    assert Training(**store.load("result")).status == result.status


def test_mistakes_are_refused():
    for bad, word in (
        ({"optimizer": "adamw"}, "optimizer"),
        ({"loss": "hinge"}, "loss"),
        ({"schedule": "linear"}, "schedule"),
        ({"batch": 0}, "batch"),
        ({"epochs": 0}, "epochs"),
    ):
        with refusal(word):
            trained(**bad)
    with refusal("examples"):
        train(small(), Split(TRAIN.inputs[:0], TRAIN.targets[:0]), TEST, order=seeded(7))


def test_augmentation_moves_and_mirrors():
    images = torch.arange(3 * 6 * 6, dtype=torch.uint8).view(1, 3, 6, 6).repeat(400, 1, 1, 1) + 1
    out = StreamAugment(seeded(1), padding=1)(images)
    padded = nn.functional.pad(images[:1], [1] * 4)[0]
    expected = {
        bytes(crop.numpy().tobytes())
        for top in range(3)
        for left in range(3)
        for crop in [padded[:, top : top + 6, left : left + 6].contiguous()]
        for crop in (crop, crop.flip(-1).contiguous())
    }
    found = {image.numpy().tobytes() for image in out}
    assert found == expected  # every offset and both orientations occur, and nothing else


@pytest.mark.skipif(sys.platform != "linux", reason="counts page faults of glibc's allocator")
def test_freed_memory_is_kept_for_the_next_step():
    def faults():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        _ = [torch.zeros(1 << 20) for _ in range(16)]  # 64 MiB, freed on return
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    if not keep_freed_memory():
        pytest.skip("no mallopt in this C library")
    assert min(faults() for _ in range(5)) < 1000  # of 16,384 pages


IMAGES, OTHERS = pixels(70, 1, flat=False), pixels(30, 2, flat=False)


class Recorder:
    """Stands for a CUDA graph: a step is recorded, which runs nothing, and replayed."""

    def __init__(self, fails=False):
        self.captured = self.replayed = self.warmed = 0
        self.fails = fails

    def warm(self, step):
        self.warmed += 1
        step()

    def record(self, step):
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        self.captured += 1

        def replay():
            self.replayed += 1
            step()

        return replay


@pytest.fixture
def by_steps(monkeypatch):
    """Trainings run by Steps on this device too; gives what captures, and the Steps that were
    made."""
    made = []

    def install(capture):
        def steps_of(split, vector, run, gradient, batch, clip):
            augment = (
                StreamAugment(run.augment)
                if isinstance(run.augment, torch.Generator)
                else run.augment
            )
            made.append(
                Steps(
                    split,
                    vector,
                    run.optimizer,
                    gradient,
                    batch=batch,
                    clip=clip,
                    augment=augment,
                    capture=capture,
                )
            )
            return made[-1]

        monkeypatch.setattr(minibatch, "steps_of", steps_of)
        return made

    return install


def runs(augmented):
    g = seeded(9)
    if augmented is None:
        return trained(rate=0.1, batch=16, epochs=3)
    augment, order = (
        (seeded(8), seeded(7)) if augmented == "stream" else (LoaderAugment(g), LoaderOrder(g))
    )
    return train(
        convolutional(), IMAGES, OTHERS, order=order, augment=augment, rate=0.1, batch=16, epochs=3
    )


@pytest.mark.parametrize("augmented", [None, "stream", "loader"])
def test_the_same_bytes_as_the_plain_loop(augmented, by_steps):
    plain = runs(augmented)
    recorder = Recorder()
    made = by_steps(recorder)
    same_bits(plain, runs(augmented))
    assert (
        recorder.captured == 1
    )  # batches of 16; those of 6 at the ends of three epochs are still warming up
    assert recorder.replayed == 3 * 4 - WARM_UP
    assert recorder.warmed == WARM_UP + 3
    assert made[0].reason == ""


def test_a_step_that_cannot_be_captured_runs_kernel_by_kernel(by_steps):
    plain = runs("stream")
    made = by_steps(Recorder(fails=True))
    same_bits(plain, runs("stream"))
    assert made[0].reason == "operation not permitted when stream is capturing"


def test_a_resumed_training_goes_on_in_the_same_bytes(by_steps):
    def run(store, progress=None):
        settings = {
            "rate": 0.1,
            "batch": 16,
            "epochs": 4,
            "save_every": 1,
            "checkpoints": store,
            "progress": progress,
        }
        return train(
            convolutional(), IMAGES, OTHERS, order=seeded(7), augment=seeded(8), **settings
        )

    plain = run(Store())
    by_steps(Recorder())
    store = Store()
    with pytest.raises(Killed):
        run(store, kill_at(3))
    same_bits(plain, run(store))


@pytest.mark.parametrize("padding", [1, 4, 7])
def test_crops_and_flips_are_those_drawn_one_by_one(padding):
    one, together = seeded(5), seeded(5)
    for count in (1, 7, 200):
        rows = []
        for _ in range(count):
            top, left = (int(torch.randint(2 * padding + 1, (1,), generator=one)) for _ in range(2))
            rows.append((top, left, bool(torch.rand(1, generator=one) < 0.5)))
        found = LoaderAugment(together, padding).draws(count)
        columns = [t.tolist() for t in found]
        assert list(zip(*columns, strict=True)) == rows
    assert torch.equal(one.get_state(), together.get_state())


def test_where_it_is_used():
    weight = torch.nn.Parameter(torch.zeros(3))
    sgd, adam = torch.optim.SGD([weight], 0.1), torch.optim.Adam([weight], 0.1)
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    assert usable(cuda, sgd, None)
    assert usable(cuda, sgd, LoaderAugment(seeded(1)))
    assert not usable(cpu, sgd, None)
    assert not usable(cuda, adam, None)
    assert not usable(cuda, sgd, lambda images: images)
