"""Data sets of the experiments: CIFAR, surrogate images, two Gaussian classes, attention and scalar regression."""
