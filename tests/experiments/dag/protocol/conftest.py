"""The tiny training of tests/training, and how the tests of the protocol measure it."""

from runner.kinds.metric import InterLayerMetric
from tests.training.conftest import DATA, TRAINING, settings, trained

__all__ = ["DATA", "METRIC", "TRAINING", "settings", "trained"]
METRIC = InterLayerMetric(examples=6, subsamples=2)
