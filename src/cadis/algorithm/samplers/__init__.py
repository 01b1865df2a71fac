"""Samplers: who takes part in a round. One file a sampler; it imports only the core."""

from cadis.algorithm.samplers.clusters import Clusters
from cadis.algorithm.samplers.fedcluster import FedCluster
from cadis.algorithm.samplers.hics import HiCS
from cadis.algorithm.samplers.power_of_choice import PowerOfChoice
from cadis.algorithm.samplers.protocol import BaseSampler, SampledRound, Sampler, SamplerRound
from cadis.algorithm.samplers.uniform import Uniform

SAMPLERS: dict[str, type[Sampler]] = {
    sampler.name: sampler for sampler in (Uniform, Clusters, PowerOfChoice, FedCluster, HiCS)
}

__all__ = [
    "SAMPLERS",
    "BaseSampler",
    "Clusters",
    "FedCluster",
    "HiCS",
    "PowerOfChoice",
    "SampledRound",
    "Sampler",
    "SamplerRound",
    "Uniform",
]
