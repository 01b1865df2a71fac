"""Experiments: options, running them, and the folders that reports read."""

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
from cadis.experiment.compare_methods import ComparisonResult, compare
from cadis.experiment.config import ExperimentConfig, resolve
from cadis.experiment.execution import RunResult, execute, run_experiment
from cadis.experiment.observe_layer import HeadKeeping, observe_layer
from cadis.experiment.parameters import PARTITION, Part, as_option, our_parts, qualified
from cadis.experiment.presets import (
    paper_figures,
    place_in_paper,
    preset_names,
    preset_text,
    read_preset,
    reported,
)
from cadis.experiment.run_federation import run
from cadis.experiment.settings import Settings
from cadis.experiment.study import comparison_of, run_study, study_folder
from cadis.experiment.tracking import Tracking, check_tracker, tracked
from cadis.experiment.variants import (
    ABLATIONS,
    baseline_of,
    check_runs,
    grid_variants,
    method_variants,
    parse_grid,
)

__all__ = [
    "ABLATIONS",
    "LOADED_BY",
    "PARTITION",
    "Built",
    "ComparisonResult",
    "ExperimentConfig",
    "HeadKeeping",
    "Part",
    "RunResult",
    "Settings",
    "Tracking",
    "as_option",
    "baseline_of",
    "build_experiment",
    "build_model",
    "build_partition",
    "check_runs",
    "check_tracker",
    "compare",
    "comparison_of",
    "execute",
    "fitted",
    "grid_variants",
    "load_dataset",
    "method_variants",
    "observe_layer",
    "our_parts",
    "outputs_for",
    "own_tests_of",
    "paper_figures",
    "parse_grid",
    "place_in_paper",
    "preset_names",
    "preset_text",
    "qualified",
    "read_preset",
    "reported",
    "resolve",
    "run",
    "run_experiment",
    "run_study",
    "study_folder",
    "tracked",
]
