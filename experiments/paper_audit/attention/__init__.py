"""The attention paper: Hessian of softmax-attention regression with respect to its input, bounds,
Newton recovery."""
