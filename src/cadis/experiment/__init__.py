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
from cadis.experiment.tracking import Tracking, call_each, check_tracker
from cadis.experiment.variants import check_runs, grid_variants, method_variants, parse_grid
