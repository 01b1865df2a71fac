"""The built-in network that a model file describes.

The file may come from a stranger. So the network is first built without memory, on torch's device
"meta", and compared with the tensors in the file.
"""

import warnings
from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor, nn

from cadis.data import ImagePreprocessing
from cadis.errors import CadisError
from cadis.models import MODELS, build_network
from cadis.store import MAX_INPUT_SIZE, ModelDescription, ModelInputs


def build_described_network(
    architecture: str, description: ModelDescription, tensors: Mapping[str, Tensor], source: str
) -> nn.Module:
    """Build a built-in network and load its parameters.

    Args:
        architecture: name of the network, one of :data:`cadis.models.MODELS`.
        description: description of the model, with its inputs.
        tensors: the parameters and buffers in the file.
        source: name of the file for errors.
    """
    inputs = description.inputs
    if architecture not in MODELS or inputs is None:
        kind = f"a {architecture}" if architecture.isprintable() and architecture else "unknown"
        raise CadisError(
            f"The model in {source} is {kind}, which cadis cannot create; give a module: "
            "cadis.load(RUN, model=MODULE), or --model FILE.py:FUNCTION."
        )
    if not _matches(architecture, inputs, description.num_outputs, tensors):
        raise CadisError(
            f"The tensors in {source} are not those of the model {architecture} that the file "
            "describes; restore a copy of the file."
        )
    module = build_network(architecture, inputs.shape, description.num_outputs)
    module.load_state_dict(tensors)
    return module


def _matches(
    architecture: str, inputs: ModelInputs, num_outputs: int, tensors: Mapping[str, Tensor]
) -> bool:
    """Return whether the network has these tensors, and can process the inputs."""
    if prod(inputs.shape) > MAX_INPUT_SIZE:
        return False
    is_image = isinstance(inputs.preprocessing, ImagePreprocessing)
    dtype: torch.dtype = torch.float32 if is_image else getattr(torch, inputs.dtype)
    try:
        with torch.device("meta"), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a layer may have no inputs
            network = build_network(architecture, inputs.shape, num_outputs).eval()
            expected = network.state_dict()
            if {name: (t.shape, t.dtype) for name, t in expected.items()} != {
                name: (t.shape, t.dtype) for name, t in tensors.items()
            }:
                return False
            outputs: Tensor = network(torch.zeros(2, *inputs.shape, dtype=dtype))
    except (CadisError, RuntimeError):  # the network does not take such inputs
        return False
    return outputs.shape == (2, num_outputs)
