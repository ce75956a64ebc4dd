"""A tiny training shared by the tests of trainings and of what is measured of them."""

import pytest

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
