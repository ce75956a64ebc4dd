"""Papers WS bound and HSR: the largest Hessian eigenvalue of a three-layer network, and descent on
its bound.
"""
