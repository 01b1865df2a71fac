"""Where models are trained."""

from typing import Literal, TypeAlias

import torch

from cadis.core import CadisError

Device: TypeAlias = Literal["auto", "cpu", "cuda", "mps"]


def choose_device(device: Device) -> torch.device:
    """The only place where a device is chosen."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return torch.device(next((name for name, there in available.items() if there), "cpu"))
    if not available.get(device, True):
        raise CadisError(f"There is no '{device}' device on this machine; use the device 'cpu'.")
    return torch.device(device)
