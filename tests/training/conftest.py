"""A tiny training shared by the tests of trainings and of what is measured of them."""

import io

import pytest
import torch

from runner.contract import Context
from runner.kinds.dataset import SurrogateData
from runner.kinds.model import MlpModel
from runner.kinds.training import MinibatchTraining
from runner.training.trained import Trained, train_images

DATA = SurrogateData(train=120, test=40)
TRAINING = MinibatchTraining(epochs=2, batch=32)


def settings(arch: str = "plain", activation: str = "relu", depth: int = 3) -> dict:
    shape = {"depth": depth, "arch": arch, "activation": activation}
    return MlpModel(width=5).network(outputs=DATA.classes, **shape)


@pytest.fixture(scope="session")
def trained() -> Trained:
    return train_images(settings(activation="silu"), DATA, TRAINING, Context(seed=42))


class Store:
    """Checkpoints as bytes, so that nothing is shared with the training that saved them."""

    def __init__(self):
        self.saved = {}

    def load(self, name):
        if name not in self.saved:
            return None
        return torch.load(io.BytesIO(self.saved[name]), weights_only=True)

    def save(self, name, state):
        buffer = io.BytesIO()
        torch.save(state, buffer)
        self.saved[name] = buffer.getvalue()


class Killed(Exception):
    pass
