"""One thread for every test: several on a shared machine spend their time waiting for one another."""

import os

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # read when torch is first imported
    os.environ.setdefault(variable, "1")
