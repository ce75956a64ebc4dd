"""The methods that are compared, in the order of the tables."""

METHODS = ("gd", "trace", "asam", "asam_wide", "hsr")
