"""What a run leaves behind: records, checkpoints, and the folder that reports read."""

from cadis.store.checkpoint import Checkpoint, read_tensors, store_tensors
from cadis.store.folder import RunFolder
from cadis.store.history import HistoryWriter
from cadis.store.lock import is_locked, lock
from cadis.store.metrics import (
    SHOWN,
    agreement,
    best_round,
    client_spread,
    last_tested,
    mean_accuracy,
    measured,
    metric_words,
    rare_classes,
    replay,
    sample,
    summarise,
    true_clusters_of,
)
from cadis.store.model_file import ModelDescription, ModelInputs, parse_model
from cadis.store.observations import (
    Alikeness,
    Observations,
    SeenProfiles,
    alikeness,
    clusters_of,
    confidence_of,
    gamma_of,
    grouped,
    joined,
    scalar_of,
    similarity_of,
    tells_profiles,
    threshold_of,
    told_scalars,
    unfit,
)
from cadis.store.resuming import check_named
from cadis.store.storage import DamagedError, read_file, replace_file, replace_text, sync_folder
from cadis.store.study import (
    PaperReport,
    PlannedRun,
    Study,
    StudyCallbacks,
    StudyFolder,
    Variant,
    cell_label,
    cell_name,
    planned_runs,
)
from cadis.store.writer import RunWriter
