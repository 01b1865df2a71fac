"""Experiments: options, running them, and the folders that reports read."""

from cadis.experiment.build import (
    Experiment,
    build_experiment,
    build_model,
    build_partition,
    choose_partition,
    load_dataset,
    outputs_for,
    own_tests_of,
)
from cadis.experiment.compare_methods import ComparisonResult, compare
from cadis.experiment.config import ExperimentConfig, Settings, resolve
from cadis.experiment.execution import RunResult, run_experiment
from cadis.experiment.observe_layer import HeadKeeping, observe_layer
from cadis.experiment.parameters import PARTITION, Part, as_option, our_parts, qualified
from cadis.experiment.presets import (
    preset_names,
    preset_text,
    read_paper,
    read_preset,
    without_paper,
)
from cadis.experiment.run_federation import run
from cadis.experiment.study import comparison_of, run_study, study_folder
from cadis.experiment.tracking import Tracking, check_tracker
from cadis.experiment.variants import (
    check_runs,
    grid_variants,
    method_variants,
    parse_grid,
)

__all__ = [
    "PARTITION",
    "ComparisonResult",
    "Experiment",
    "ExperimentConfig",
    "HeadKeeping",
    "Part",
    "RunResult",
    "Settings",
    "Tracking",
    "as_option",
    "build_experiment",
    "build_model",
    "build_partition",
    "check_runs",
    "check_tracker",
    "choose_partition",
    "compare",
    "comparison_of",
    "grid_variants",
    "load_dataset",
    "method_variants",
    "observe_layer",
    "our_parts",
    "outputs_for",
    "own_tests_of",
    "parse_grid",
    "preset_names",
    "preset_text",
    "qualified",
    "read_paper",
    "read_preset",
    "resolve",
    "run",
    "run_experiment",
    "run_study",
    "study_folder",
    "without_paper",
]
