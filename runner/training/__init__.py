"""Training: full-batch descent of many starts, minibatch loops, and methods that look for flat minima."""
