"""Tables of an experiment, measured or made up, and what it claims of them: the one way in which
the tests of all experiments check a verdict."""

from collections import defaultdict
from itertools import product

import numpy as np
import pandas as pd

from runner.contract import Context, analyse, measure
from runner.store.tables import frame

KNOWN = {}
MOST_KNOWN = 20


def grid(**axes):
    """A table with a row for each combination of these values."""
    return pd.DataFrame(product(*axes.values()), columns=list(axes))


def rows_with(table, **values):
    """Which rows have these values; of a list, one of them."""
    found = np.full(len(table), True)
    for column, value in values.items():
        found &= table[column].isin(np.atleast_1d(value))
    return found


def changed(table, where, **columns):
    """The table with other values of some columns in the rows that have the values of `where`."""
    rows = rows_with(table, **where)
    kept = {name: table[name].where(~rows, values) for name, values in columns.items()}
    return table.assign(**kept)


def merged(experiment, seeds, cells=()):
    """These cells, or all, merged as the store would; measured at the first seed, and the same at
    the others."""
    parts = defaultdict(list)
    for cell in cells or experiment.cells():
        for name, table in measure(experiment, cell, Context(seed=seeds[0])).items():
            for seed in seeds:
                parts[name].append(frame(name, table, {**cell.params, "seed": seed}))
    return joined(parts)


def joined(parts):
    """name -> the tables of this name as one."""
    return {name: pd.concat(frames, ignore_index=True) for name, frames in parts.items()}


def measured_again(experiment, cell, seed, name):
    """One table of a cell, measured once more, as `merged` returns it."""
    again = measure(experiment, cell, Context(seed=seed))[name]
    return frame(name, again, {**cell.params, "seed": seed})


def claims_of(experiment, tables):
    """name -> claim, one for each statement; decided once for the same frames."""
    key = (id(experiment), *((name, id(table)) for name, table in tables.items()))
    if key not in KNOWN:
        claims = analyse(experiment, tables).claims()
        found = {claim.name: claim for claim in claims}
        assert len(found) == len(claims)
        if len(KNOWN) == MOST_KNOWN:
            KNOWN.clear()
        KNOWN[key] = (experiment, dict(tables), found)  # an id is of one object while it is kept
    return KNOWN[key][-1]


def verdicts(experiment, tables, name):
    """part -> verdict of a claim; {"": verdict} where it has no parts."""
    claim = claims_of(experiment, tables)[name]
    others = {f"{part} (other seeds)": v for part, v in claim.other_seeds.items()}
    return {**(claim.variants or {"": claim.verdict}), **others}


def check(experiment, tables, /, **expected):
    """confirmed="a; b": the claims a and b are confirmed. "a | p" is part p of claim a."""
    found = {}
    for name, claim in claims_of(experiment, tables).items():
        found[name] = claim.verdict
        found |= {f"{name} | {part}": v for part, v in claim.variants.items()}
    for word, names in expected.items():
        told = {name: found[name] for name in names.split("; ")}
        assert told == dict.fromkeys(told, word.replace("_", " "))
