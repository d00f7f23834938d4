"""Around a training step: settings that make it repeat, runs compared, and what the recorder takes.

The public names, verify() and reproducible() and what they give, are in ordo.torch.
"""

from .. import torch as _torch  # noqa: F401 -- first, whichever of the two is imported: they need each other's modules
