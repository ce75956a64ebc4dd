"""Training: full-batch descent of many starts, and minibatch loops."""

CHECKPOINTS = ("init", "mid", "final")
"""States of a training that are kept: before it, after half of its epochs, and after all of
them."""
