"""Figures of the WS-bound study, a module for each kind of picture."""
