"""Data sets that must be there before a run starts, and the `data` verb that brings them."""
