"""A sweep on Slurm, rehearsed on this machine.

`hydra/launcher=local_jobs` starts the jobs that Slurm would start, as processes of this machine. On
a cluster write `hydra/launcher=slurm hydra.launcher.partition=NAME` in its place: one job a seed,
over one store in a shared folder. Both need a plugin: `pip install hydra-submitit-launcher`.
"""

# needs: hydra_plugins.hydra_submitit_launcher
import subprocess

command = [
    "hess-run",
    "-m",
    "hydra/launcher=local_jobs",
    "experiment=scalar_spectrum",
    "profile=quick",
    "seed=1,2",
    "outputs=outputs",
]
done = subprocess.run(command, capture_output=True, text=True, check=True)
print(done.stdout)
