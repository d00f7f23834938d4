"""PyTorch for the benchmarks of this folder."""

import os
import sys
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LAUNCHES = ("cudaLaunch", "cuLaunch", "cudaMemset", "cudaMemcpy")
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


def launches(function):
    """How many kernels and copies a call starts, as the profiler counts them."""
    import torch

    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    function()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=kinds) as seen:
        function()
        torch.cuda.synchronize()
    return sum(event.name.startswith(LAUNCHES) for event in seen.events())
