"""Settings of the architectures, one module a family, and how each becomes the arguments of a builder.

Light: torch is loaded when a network is built, not when its settings are read. `network(...)` of a kind gives the name
of a function of `runner.models` (or "module.function" of a module of your own) under "builder", beside its keyword
arguments; the class count of the data, and the depth and activation that an experiment varies, come from there.
"""
