"""Samplers: who takes part in a round. One file a sampler; it imports only the core."""

from cadis.samplers.clusters import Clusters
from cadis.samplers.protocol import Sampler, SamplerRound
from cadis.samplers.uniform import Uniform

SAMPLERS: dict[str, type[Sampler]] = {sampler.name: sampler for sampler in (Uniform, Clusters)}

__all__ = ["SAMPLERS", "Clusters", "Sampler", "SamplerRound", "Uniform"]
