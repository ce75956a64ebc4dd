"""The published results in pandas.

`results.load` gives the merged tables of an experiment as DataFrames: the paper's own rows by
default, every stored row with `all=True`.
"""

import matplotlib.pyplot as plt

from runner import results

networks = results.load("exp3_gn_gap")["networks"]
trained = networks[networks["checkpoint"] == "final"]
accuracy = trained.groupby("activation")["test_accuracy"].agg(["mean", "std", "count"])
print(accuracy.round(3).to_string())

accuracy["mean"].plot.bar(yerr=accuracy["std"], capsize=3)
plt.ylabel("test accuracy after training")
plt.savefig("recipe.png", dpi=100, bbox_inches="tight")
