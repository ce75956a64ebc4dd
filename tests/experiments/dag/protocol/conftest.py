"""A tiny training shared by the tests of the protocol."""

import pytest

from experiments.dag.protocol.inter_layer import mlp_settings
from experiments.dag.protocol.training import Trained, train_images
from runner.contract import Context
from runner.kinds.dataset import SurrogateData
from runner.kinds.metric import InterLayerMetric
from runner.kinds.model import MlpModel
from runner.kinds.training import MinibatchTraining

DATA = SurrogateData(train=120, test=40)
TRAINING = MinibatchTraining(epochs=2, batch=32)
METRIC = InterLayerMetric(examples=6, subsamples=2)


def settings(arch: str = "plain", activation: str = "relu", depth: int = 3) -> dict:
    return mlp_settings(MlpModel(width=5), DATA, depth=depth, arch=arch, activation=activation)


@pytest.fixture(scope="session")
def trained() -> Trained:
    return train_images(settings(activation="silu"), DATA, TRAINING, Context(seed=42))
