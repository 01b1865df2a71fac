"""Experiments: resolve their options, build and run them, and plan studies of several runs."""

from cadis.experiment.build import (
    Experiment,
    choose_partition,
    count_outputs,
    get_client_tests,
    load_dataset,
    make_experiment,
    make_model,
    make_partition,
)
from cadis.experiment.compare_methods import ComparisonResult, compare
from cadis.experiment.config import ExperimentConfig, Settings, resolve
from cadis.experiment.execution import RunResult, run_experiment
from cadis.experiment.observe_layer import HeadRecorder, observe_layer
from cadis.experiment.parameters import (
    PARTITION,
    Part,
    list_builtin_parts,
    qualify_parameter,
    to_option_name,
)
from cadis.experiment.presets import (
    drop_paper_results,
    list_presets,
    read_paper,
    read_preset,
    read_preset_text,
)
from cadis.experiment.run_federation import run
from cadis.experiment.study import find_study_folder, plan_comparison, run_study
from cadis.experiment.tracking import Tracking, check_tracker, combine_callbacks
from cadis.experiment.variants import (
    check_run_count,
    make_grid_variants,
    make_method_variants,
    parse_grid,
)
