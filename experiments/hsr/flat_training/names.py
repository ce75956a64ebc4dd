"""Names of the methods, in the order of tables and figures; light, so that listing needs no torch."""

METHODS = ("sgd", "sam", "asam", "asam_all", "trace", "hsr", "hsr_cheap")
