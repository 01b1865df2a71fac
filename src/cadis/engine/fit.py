"""Which layer of a model is the classifier?"""

from copy import deepcopy

import torch
from torch import nn

from cadis.data import Examples
from cadis.models import name_head
from cadis.training import applied_to


def found_head(module: nn.Module, examples: Examples) -> str:
    """The name of the classifier layer."""
    examples.check("The test set")
    with applied_to(examples), torch.no_grad():
        return name_head(deepcopy(module).eval(), examples.take(slice(0, 2)).scaled)
