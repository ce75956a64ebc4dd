r"""A published figure at another width.

`hess-run why "Fig. 3 of WS"` prints what draws the figure, what measures its cells, and what draws
it with other settings. The width is in both commands, in `hidden=[3]`, which is measured, and in
`portrait_hidden=3`, which is drawn. For width 5 (half a minute), with the learning rate and stop
rule closest to the published counts (`printed`: those of the text):

    hess-run experiment=ws_bound 'part=[search]' 'protocol=[fitted]' 'activation=[sigmoid]' \
      'hidden=[5]' portrait_hidden=5
    hess-run report experiment=ws_bound 'part=[search]' 'protocol=[fitted]' \
      'activation=[sigmoid]' 'hidden=[5]' portrait_hidden=5 figure=fig03_sharpest_fitted

The script draws Fig. 1 of the scalar-spectrum paper (widths 5 and 20) at width 8, ten inches wide.
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
