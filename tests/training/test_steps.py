"""Steps on fixed memory against the plain loop: the same bytes, captured or not, whatever is drawn."""

from __future__ import annotations

import pytest
import torch

import runner.training.minibatch as minibatch
from runner.training.minibatch import train
from runner.training.order import LoaderAugment, LoaderOrder
from runner.training.steps import WARM_UP, Steps, StreamAugment, usable
from tests.training.test_minibatch import Killed, Store, convolutional, generator, kill_at, pixels, same_bits, small

TRAIN, TEST = pixels(70, 1), pixels(30, 2)
IMAGES, OTHERS = pixels(70, 1, flat=False), pixels(30, 2, flat=False)


class Recorder:
    """Stands for a CUDA graph: a step is recorded, which runs nothing, and replayed."""

    def __init__(self, fails: bool = False) -> None:
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
    """Trainings run by Steps on this device too; gives what captures, and the Steps that were made."""
    made = []

    def install(capture):
        def steps_of(split, vector, run, gradient, batch, clip):
            augment = StreamAugment(run.augment) if isinstance(run.augment, torch.Generator) else run.augment
            made.append(
                Steps(split, vector, run.optimizer, gradient, batch=batch, clip=clip, augment=augment, capture=capture)
            )
            return made[-1]

        monkeypatch.setattr(minibatch, "steps_of", steps_of)
        return made

    return install


def runs(augmented):
    g = generator(9)
    if augmented is None:
        return train(small(), TRAIN, TEST, order=generator(7), rate=0.1, batch=16, epochs=3)
    augment, order = (generator(8), generator(7)) if augmented == "stream" else (LoaderAugment(g), LoaderOrder(g))
    return train(convolutional(), IMAGES, OTHERS, order=order, augment=augment, rate=0.1, batch=16, epochs=3)


@pytest.mark.parametrize("augmented", [None, "stream", "loader"])
def test_the_same_bytes_as_the_plain_loop(augmented, by_steps):
    plain = runs(augmented)
    recorder = Recorder()
    made = by_steps(recorder)
    same_bits(plain, runs(augmented))
    assert recorder.captured == 1  # batches of 16; those of 6 at the ends of three epochs are still warming up
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
        settings = {"rate": 0.1, "batch": 16, "epochs": 4, "save_every": 1, "checkpoints": store, "progress": progress}
        return train(convolutional(), IMAGES, OTHERS, order=generator(7), augment=generator(8), **settings)

    plain = run(Store())
    by_steps(Recorder())
    store = Store()
    with pytest.raises(Killed):
        run(store, kill_at(3))
    same_bits(plain, run(store))


def test_where_it_is_used():
    weight = torch.nn.Parameter(torch.zeros(3))
    sgd, adam = torch.optim.SGD([weight], 0.1), torch.optim.Adam([weight], 0.1)
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    assert usable(cuda, sgd, None)
    assert usable(cuda, sgd, LoaderAugment(generator(1)))
    assert not usable(cpu, sgd, None)
    assert not usable(cuda, adam, None)
    assert not usable(cuda, sgd, lambda images: images)
