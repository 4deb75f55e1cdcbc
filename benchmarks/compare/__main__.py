"""`python -m benchmarks.compare --quick`, `--full`, `--only cuda`, `--only "n=500 rho=1"`."""

import os
import sys


def use_one_thread():
    """Set one thread for every linear algebra library before it is loaded, and disable GPU memory preallocation."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


if __name__ == "__main__":
    use_one_thread()
    from .command import main

    sys.exit(main())
