"""Transforms of updates: one file a transform; it imports only the core."""

from cadis.transforms.protocol import Transform, TransformRound

TRANSFORMS: dict[str, type[Transform]] = {}
"""By name, in the order in which they are applied when a user names several."""

__all__ = ["TRANSFORMS", "Transform", "TransformRound"]
