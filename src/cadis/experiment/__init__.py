"""Experiments: options, running them, and the folders that reports read."""

from cadis.experiment.behaviour import Behaviour, Panel, observe_layer
from cadis.experiment.build import (
    LOADED_BY,
    Built,
    build_experiment,
    build_model,
    build_partition,
    fitted,
    load_dataset,
    outputs_for,
    own_tests_of,
)
from cadis.experiment.census import Census, describe_federation
from cadis.experiment.comparing import (
    PlannedRun,
    StudyCallbacks,
    comparison_of,
    planned_runs,
    run_study,
    study_folder,
)
from cadis.experiment.config import ExperimentConfig, resolve
from cadis.experiment.presets import (
    paper_figures,
    place_in_paper,
    preset_names,
    preset_text,
    read_preset,
    reported,
)
from cadis.experiment.running import OnRound, RunResult, execute, run_experiment
from cadis.experiment.settings import FederationSettings, Settings
from cadis.experiment.variants import (
    ABLATIONS,
    CHOICES,
    baseline_of,
    check_runs,
    grid_variants,
    gridded_methods,
    method_variants,
    parse_grid,
)

__all__ = [
    "ABLATIONS",
    "CHOICES",
    "LOADED_BY",
    "Behaviour",
    "Built",
    "Census",
    "ExperimentConfig",
    "FederationSettings",
    "OnRound",
    "Panel",
    "PlannedRun",
    "RunResult",
    "Settings",
    "StudyCallbacks",
    "baseline_of",
    "build_experiment",
    "build_model",
    "build_partition",
    "check_runs",
    "comparison_of",
    "describe_federation",
    "execute",
    "fitted",
    "grid_variants",
    "gridded_methods",
    "load_dataset",
    "method_variants",
    "observe_layer",
    "outputs_for",
    "own_tests_of",
    "paper_figures",
    "parse_grid",
    "place_in_paper",
    "planned_runs",
    "preset_names",
    "preset_text",
    "read_preset",
    "reported",
    "resolve",
    "run_experiment",
    "run_study",
    "study_folder",
]
