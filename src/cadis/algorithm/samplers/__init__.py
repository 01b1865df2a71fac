"""Samplers: they choose the participants of a round. Each sampler is in its own file."""

from cadis.algorithm.samplers.base import BaseSampler, SamplerFeedback, SamplerRound, Uniform
from cadis.algorithm.samplers.clusters import Clusters
from cadis.algorithm.samplers.coverage import Coverage
from cadis.algorithm.samplers.fedcluster import FedCluster
from cadis.algorithm.samplers.herding import Herding
from cadis.algorithm.samplers.hics import HiCS
from cadis.algorithm.samplers.power_of_choice import PowerOfChoice

SAMPLERS: dict[str, type[BaseSampler]] = {
    sampler.name: sampler
    for sampler in (Uniform, Clusters, Herding, Coverage, PowerOfChoice, FedCluster, HiCS)
}
"""Built-in samplers by name."""

__all__ = [
    "SAMPLERS",
    "BaseSampler",
    "Clusters",
    "Coverage",
    "FedCluster",
    "Herding",
    "HiCS",
    "PowerOfChoice",
    "SamplerFeedback",
    "SamplerRound",
    "Uniform",
]
