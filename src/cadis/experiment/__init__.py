"""Experiments: options, running them, and the folders that reports read."""

from cadis.experiment.api import run
from cadis.experiment.build import (
    Built,
    build_experiment,
    build_model,
    build_partition,
    fitted,
    load_dataset,
)
from cadis.experiment.census import Census
from cadis.experiment.config import ExperimentConfig, resolve
from cadis.experiment.describe import describe_federation
from cadis.experiment.presets import paper_figures, preset_names, preset_text, read_preset
from cadis.experiment.running import OnRound, RunResult, run_experiment
from cadis.experiment.settings import FederationSettings, Settings

__all__ = [
    "Built",
    "Census",
    "ExperimentConfig",
    "FederationSettings",
    "OnRound",
    "RunResult",
    "Settings",
    "build_experiment",
    "build_model",
    "build_partition",
    "describe_federation",
    "fitted",
    "load_dataset",
    "paper_figures",
    "preset_names",
    "preset_text",
    "read_preset",
    "resolve",
    "run",
    "run_experiment",
]
