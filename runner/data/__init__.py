"""Data sets of the experiments: `runner.kinds.dataset` holds their settings, and names the function
that loads each.

Downloading is in runner.data.fetch. Nothing here loads torch before data are asked for: settings
are read by listings.
"""
