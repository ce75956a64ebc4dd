"""How far rounding alone moves a value: the same trainings from inputs changed in their last digit, seed by seed.

What is left between a published value and one from the same network, data and order is another device's rounding. The
difference of two such trainings of one seed is one draw of it; its root mean square over the seeds is the spread that a
paired comparison has to allow for (`rounding_std` of the scorecard).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from runner.stats import Statistic

ABOUT = (
    *("value", "image_variance", "image_df", "paired", "rounding_std", "rounding_df"),
    *("comparable", "calibrated", "constructed", "extreme"),
)
"""Columns of measured values that name no value."""

FEWEST = 3
"""Pairs of trainings below which no spread is given."""


def keys_of(measured: pd.DataFrame) -> list[str]:
    """The columns that tell values of one seed apart."""
    return [c for c in measured.columns if c not in (*ABOUT, "seed")]


def moved(own: pd.DataFrame, perturbed: pd.DataFrame) -> pd.DataFrame:
    """keys, seed, value, other and difference of every value that both have; own, perturbed: measured values."""
    keys = [*keys_of(own), "seed"]
    both = own[[*keys, "value"]].merge(
        perturbed[[*keys, "value"]].rename(columns={"value": "other"}), on=keys, how="inner"
    )
    return both.assign(difference=both["other"] - both["value"]).dropna(subset=["difference"])


def grown(own: pd.DataFrame, perturbed: pd.DataFrame) -> pd.DataFrame:
    """keys, mean and spread (ddof 1) over all seeds, rounding_std (root mean square difference) and rounding_df, the
    number of pairs; values with fewer than `FEWEST` pairs are left out."""
    pairs, keys = moved(own, perturbed), keys_of(own)
    squares = pairs.assign(square=pairs["difference"] ** 2).groupby(keys, dropna=False, sort=False)
    found = squares.agg(mean_square=("square", "mean"), n=("seed", "count")).reset_index()
    found = found[found["n"] >= FEWEST]
    found["rounding_std"] = found.pop("mean_square") ** 0.5
    over = own.groupby(keys, dropna=False, sort=False)["value"].agg(mean="mean", spread="std").reset_index()
    return found.rename(columns={"n": "rounding_df"}).merge(over, on=keys, how="left")


def with_rounding(own: pd.DataFrame, perturbed: pd.DataFrame) -> pd.DataFrame:
    """Measured values with `rounding_std` and `rounding_df`; blank where nothing was repeated."""
    keys = keys_of(own)
    spread = grown(own, perturbed)
    return own.merge(spread[[*keys, "rounding_std", "rounding_df"]], on=keys, how="left")


def rows(own: pd.DataFrame, perturbed: pd.DataFrame, figure: str = "") -> Iterator[Statistic]:
    """One statistic a value (kind "rounding"): std: root mean square difference, statistic: std over the spread."""
    from runner.stats import Statistic

    for record in grown(own, perturbed).to_dict("records"):
        spread = float(record["spread"])
        yield Statistic(
            name=f"{record['metric']}: what rounding moves",
            kind="rounding",
            group=label_of(record),
            figure=figure,
            label_a="inputs changed by 1e-7",
            n_a=int(record["rounding_df"]),
            mean=float(record["mean"]),
            std=float(record["rounding_std"]),
            statistic=float(record["rounding_std"]) / spread if spread > 0 else float("nan"),
            method="root mean square difference of paired trainings, over the spread of seeds",
        )


def label_of(record: Mapping[Any, Any], skipped: Sequence[str] = ("metric",)) -> str:
    """'activation=relu checkpoint=final' of the keys of a row that are there."""
    names = [k for k in record if k not in (*skipped, "mean", "spread", "rounding_std", "rounding_df")]
    return " ".join(f"{k}={_number(record[k])}" for k in names if record[k] == record[k] and record[k] != "")


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value == int(value) else value
