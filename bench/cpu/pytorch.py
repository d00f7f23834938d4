"""PyTorch for the benchmarks beside it."""

import os
import sys
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PYTHON = os.path.join(ROOT, "build", "python-torch", "bin", "python")


def skip(why):
    print(f"{os.path.basename(sys.argv[0])}: skipped: {why}")
    sys.exit(77)


def find():
    """torch of this Python; else start the program again in the environment of the tests."""
    warnings.filterwarnings("ignore", message=".*NumPy.*")
    try:
        import torch

        return torch
    except ImportError:
        if os.access(PYTHON, os.X_OK) and os.path.realpath(sys.prefix) != os.path.realpath(
            os.path.dirname(os.path.dirname(PYTHON))
        ):
            os.execv(PYTHON, [PYTHON, *sys.argv])
        skip("no PyTorch; `make python-torch-test` installs one")
