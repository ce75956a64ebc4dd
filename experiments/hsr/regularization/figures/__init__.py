"""Figures of the comparison of methods, a module for each kind of picture."""
