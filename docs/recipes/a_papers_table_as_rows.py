"""A paper's table, judged from a CSV of seeds.

Two printed numbers and one sentence are rows; `hess-run judge` decides them from a table in long
form. `margin` is the largest difference that counts as reproduced; the default, a quarter of the
printed value, is far too much for accuracies in percent.
"""

import subprocess
from pathlib import Path

import numpy as np
import pandas as pd

noise = np.random.default_rng(0).normal(0, 0.4, 10)
runs = pd.DataFrame({"method": ["plain"] * 5 + ["ours"] * 5, "seed": [*range(5)] * 2})
runs["error"] = [6.0] * 5 + [5.2] * 5 + noise
runs.to_csv("runs.csv", index=False)
Path("numbers.csv").write_text(
    "metric,method,mean,std,n_seeds,margin,table,quantity,where,source\n"
    "error,plain,6.1,0.3,3,1,runs,error,,Table 1\n"
    "error,ours,4.9,0.2,3,1,runs,error,,Table 1\n"
)
Path("statements.csv").write_text(
    "name,text,place,table,quantity,contrast,test,high,strict\n"
    "lower error,ours has a lower error,Section 4,runs,error,method ours - plain,bound,0,yes\n"
)
command = ["hess-run", "judge", "statements.csv", "numbers.csv", "runs.csv"]
print(subprocess.run(command, capture_output=True, text=True).stdout)
