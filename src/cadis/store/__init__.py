"""Storage of runs and studies: records, checkpoints, model files and summaries.

:mod:`cadis.experiment` and :mod:`cadis.flower` write them; analyses and reports read them.
"""

from cadis._io import replace_file, replace_text
from cadis.store.checkpoint import Checkpoint, read_tensors, store_tensors
from cadis.store.description_schema import MAX_INPUT_SIZE
from cadis.store.folder import RunFolder
from cadis.store.history import HistoryWriter
from cadis.store.lock import is_locked, lock
from cadis.store.metrics import (
    MAX_FIGURE_CLIENTS,
    adjusted_rand_index,
    compute_client_spread,
    compute_mean_accuracy,
    find_best_round,
    find_last_tested,
    find_rare_classes,
    format_metric_name,
    get_metric,
    get_true_clusters,
    rebuild_similarity,
    sample_clients,
    summarize,
)
from cadis.store.model_file import ModelDescription, ModelInputs, parse_model
from cadis.store.observations import (
    MeanProfiles,
    RunningSimilarities,
    assign_clusters,
    choose_similarity_reader,
    find_report_errors,
    get_clusters,
    get_confidence,
    get_gamma,
    get_scalar,
    get_similarity,
    get_threshold,
    has_profiles,
    list_compared_clients,
    list_other_scalars,
)
from cadis.store.resuming import check_same_parts
from cadis.store.signature import find_code, permit_signed_code
from cadis.store.storage import DamagedError, make_folder, read_file, sync_folder
from cadis.store.study import (
    PaperResults,
    PlannedRun,
    Study,
    StudyCallbacks,
    StudyFolder,
    Variant,
    check_user_output,
    format_cell_label,
    format_cell_name,
    list_planned_runs,
)
from cadis.store.writer import RunWriter
