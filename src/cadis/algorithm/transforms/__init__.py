"""Transforms of updates: one file a transform; it imports only the core."""

from cadis.algorithm.transforms.clip import Clip, NormBound
from cadis.algorithm.transforms.noise import Noise
from cadis.algorithm.transforms.protocol import Transform, TransformRound, apply_chain, check_chain
from cadis.algorithm.transforms.top_k import TopK
from cadis.algorithm.transforms.update import differences, replaced

_OURS: tuple[type[Transform], ...] = (TopK, Clip, Noise, NormBound)

TRANSFORMS: dict[str, type[Transform]] = {kind.name: kind for kind in _OURS}
"""By name, in the order in which they are applied when a user names several."""

__all__ = [
    "TRANSFORMS",
    "Clip",
    "Noise",
    "NormBound",
    "TopK",
    "Transform",
    "TransformRound",
    "apply_chain",
    "check_chain",
    "differences",
    "replaced",
]
