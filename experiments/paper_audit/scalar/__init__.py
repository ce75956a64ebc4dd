"""The scalar-spectrum paper: every Hessian eigenvalue and eigenvector of one-hidden-layer scalar
networks."""
