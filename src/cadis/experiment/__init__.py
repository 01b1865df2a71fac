"""Experiments: options, running them, and the folders that reports read."""

from cadis.experiment.api import run
from cadis.experiment.build import (
    Built,
    build_experiment,
    build_partition,
    fitted,
    load_dataset,
)
from cadis.experiment.census import Census
from cadis.experiment.config import ExperimentConfig, method_from, resolve
from cadis.experiment.measures import (
    cluster_agreement,
    clusters_found,
    describe_federation,
    rare_classes,
    replay,
)
from cadis.experiment.presets import paper_figures, preset_names, preset_text, read_preset
from cadis.experiment.running import OnRound, RunResult, run_experiment
from cadis.experiment.settings import FederationSettings, Settings
from cadis.experiment.store import RunFolder
from cadis.experiment.toml import read_toml
from cadis.experiment.validation import check_names

__all__ = [
    "Built",
    "Census",
    "ExperimentConfig",
    "FederationSettings",
    "OnRound",
    "RunFolder",
    "RunResult",
    "Settings",
    "build_experiment",
    "build_partition",
    "check_names",
    "cluster_agreement",
    "clusters_found",
    "describe_federation",
    "fitted",
    "load_dataset",
    "method_from",
    "paper_figures",
    "preset_names",
    "preset_text",
    "rare_classes",
    "read_preset",
    "read_toml",
    "replay",
    "resolve",
    "run",
    "run_experiment",
]
