"""A published figure at another width.

Fig. 1 of the scalar-spectrum paper has networks of width 5 and 20. Any setting can be changed on
the command line; `hess-run show experiment=NAME` lists them. The run measures only what is not
stored, in a folder of its own, and its report says that the run is not the paper's.
"""

import shutil
import subprocess
from pathlib import Path

command = [
    "hess-run",
    "experiment=scalar_spectrum",
    "part=[scaling]",
    "scaled_width=[8]",
    "outputs=outputs",
]
done = subprocess.run(command, capture_output=True, text=True, check=True)
print(done.stdout)
figure = next(Path("outputs").rglob("fig1_data_scaling.png"))
shutil.copyfile(figure, "recipe.png")
