"""Closed forms of the papers, one module per network."""
