"""Names of methods and budgets, in the order of tables and figures; light, so that listing needs no torch."""

BASELINES = ("sgd", "sam", "asam", "asam_all", "trace")
RADII = ("sam", "asam", "asam_all")
"""Methods that look around: their strength is a radius."""
HSR = ("hsr", "hsr_every", "hsr_last", "hsr_late")
"""HSR at every step, and three ways to spare its products."""
WIDE = "hsr_wide"
"""HSR searched over all weights and probes that the contest was asked for; a row beside the contest, in no claim."""
METHODS = (*BASELINES, *HSR, WIDE)
SCHEDULED = ("hsr_late",)
"""Methods whose schedule spans the whole training: cut short, they are something else."""
BUDGETS = ("steps", "cost")
RULES = ("accurate", "flat")
ENTRIES = tuple((budget, rule) for budget in BUDGETS for rule in RULES)
"""What the four numbers of a method in `chosen` are, in order."""

NAMES = {
    "sgd": "SGD",
    "sam": "SAM",
    "asam": "adaptive SAM",
    "asam_all": "adaptive SAM, biases too",
    "trace": "trace",
    "hsr": "HSR",
    "hsr_every": "HSR, every k-th step",
    "hsr_last": "HSR, last two layers",
    "hsr_late": "HSR, last third",
    "hsr_wide": "HSR, wide search",
}
