r"""A published figure at another width.

`hess-run why "Fig. 3 of WS"` prints for a figure what draws it, then what measures the cells that
it needs, their cost, and what draws it with the settings that its look depends on. Change a value
in both commands. Its width stands there twice, in `hidden=[3]`, which says what is measured, and in
`portrait_hidden=3`, which says what is drawn. For width 5 (half a minute):

    hess-run experiment=ws_bound 'part=[search]' 'protocol=[fitted]' 'activation=[sigmoid]' \
      'hidden=[5]' portrait_hidden=5
    hess-run report experiment=ws_bound 'part=[search]' 'protocol=[fitted]' \
      'activation=[sigmoid]' 'hidden=[5]' portrait_hidden=5 figure=fig03_sharpest_fitted

`fitted` has the learning rate and stop rule closest to the published counts, `printed` those of the
text. Without `part`, `protocol` and `activation` the first command measures 13 cells a seed.

The run measures only what is not stored, in a folder of its own, and its report says that the run
is not the paper's. `hess-run list ws_bound` lists all settings.

Fig. 1 of the scalar-spectrum paper has networks of width 5 and 20; the script draws it at width 8.

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
