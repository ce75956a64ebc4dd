"""Settings that the files of conf/ name: data sets, models, metrics and trainings.

Light: torch is loaded when data are read or a network is built, not when its settings are.
"""
