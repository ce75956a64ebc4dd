"""The DAG paper: inter-layer Hessian blocks over a graph."""
