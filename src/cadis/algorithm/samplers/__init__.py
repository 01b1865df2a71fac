"""Samplers: who takes part in a round. One file a sampler; it imports only the core."""

from cadis.algorithm.samplers.base import BaseSampler, SampledRound, SamplerRound, Uniform
from cadis.algorithm.samplers.clusters import Clusters
from cadis.algorithm.samplers.fedcluster import FedCluster
from cadis.algorithm.samplers.hics import HiCS
from cadis.algorithm.samplers.power_of_choice import PowerOfChoice

SAMPLERS: dict[str, type[BaseSampler]] = {
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
    "SamplerRound",
    "Uniform",
]
