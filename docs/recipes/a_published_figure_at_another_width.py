"""A published figure at another width.

Fig. 1 of the scalar-spectrum paper has networks of width 5 and 20. Any setting can be changed on
the command line; `hess-run why "Fig. 1 of scalar"` names those that a figure depends on, and
`hess-run show scalar_spectrum` lists all. The run measures only what is not stored, in a folder of
its own, and its report says that the run is not the paper's.

A figure of one value of a grid needs both, the value and its cells. Fig. 3 of the WS-bound paper at
five hidden units is `hess-run experiment=ws_bound portrait_hidden=5 'hidden=[5]'`, drawn again by
`hess-run report` with the same settings and `figure=fig03_sharpest_fitted`.

`figure_width` and `figure_height` are the size of the picture, in inches. A picture in another size
is a file of its own; nothing is measured for it.
"""

import shutil
import subprocess
from pathlib import Path

settings = ["experiment=scalar_spectrum", "part=[scaling]", "scaled_width=[8]", "outputs=outputs"]
size = ["figure=fig1_data_scaling", "figure_width=10"]
for command in (["hess-run", *settings], ["hess-run", "report", *settings, *size]):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    print(done.stdout)
figure = next(Path("outputs").rglob("fig1_data_scaling_10in.png"))
shutil.copyfile(figure, "recipe.png")
