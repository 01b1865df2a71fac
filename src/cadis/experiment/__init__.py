"""Experiments: options, running them, and the folders that reports read."""

from cadis.experiment.api import run
from cadis.experiment.config import ExperimentConfig, Settings, method_from, read_toml, resolve
from cadis.experiment.measures import (
    cluster_agreement,
    clusters_found,
    describe_federation,
    rare_classes,
    replay,
)
from cadis.experiment.running import OnRound, RunResult, run_experiment
from cadis.experiment.store import RunFolder

__all__ = [
    "ExperimentConfig",
    "OnRound",
    "RunFolder",
    "RunResult",
    "Settings",
    "cluster_agreement",
    "clusters_found",
    "describe_federation",
    "method_from",
    "rare_classes",
    "read_toml",
    "replay",
    "resolve",
    "run",
    "run_experiment",
]
