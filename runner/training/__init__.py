"""Training: full-batch descent of many starts, minibatch loops, and methods that look for flat minima."""

CHECKPOINTS = ("init", "mid", "final")
"""States of a training that are kept: before it, after half of its epochs, and after all of them."""
