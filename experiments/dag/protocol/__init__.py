"""What the inter-layer experiments of the DAG paper share: train, measure at three checkpoints,
aggregate, judge.

`inter_layer` is light and holds the base class; the other modules import torch or pandas and are
imported when used.
"""
