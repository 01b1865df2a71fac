"""What a run leaves behind: records, checkpoints, and the folder that reports read."""

from cadis.store.checkpoint import Checkpoint, read_tensors, store_tensors
from cadis.store.description import ModelDescription, ModelInputs
from cadis.store.folder import RunFolder
from cadis.store.history import HistoryWriter
from cadis.store.lock import is_locked, lock
from cadis.store.metrics import (
    agreement,
    best_round,
    client_spread,
    last_tested,
    mean_accuracy,
    measured,
    metric_words,
    rare_classes,
    replay,
    summarise,
    true_clusters_of,
)
from cadis.store.model_file import parse_model
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
from cadis.store.option_changes import check_named
from cadis.store.planned_run import PlannedRun, StudyCallbacks, planned_runs
from cadis.store.sampling import SHOWN, sample
from cadis.store.storage import DamagedError, read_file, replace_file, replace_text, sync_folder
from cadis.store.study import PaperReport, Study, StudyFolder, Variant, cell_label, cell_name
from cadis.store.writer import RunWriter

__all__ = [
    "SHOWN",
    "Alikeness",
    "Checkpoint",
    "DamagedError",
    "HistoryWriter",
    "ModelDescription",
    "ModelInputs",
    "Observations",
    "PaperReport",
    "PlannedRun",
    "RunFolder",
    "RunWriter",
    "SeenProfiles",
    "Study",
    "StudyCallbacks",
    "StudyFolder",
    "Variant",
    "agreement",
    "alikeness",
    "best_round",
    "cell_label",
    "cell_name",
    "check_named",
    "client_spread",
    "clusters_of",
    "confidence_of",
    "gamma_of",
    "grouped",
    "is_locked",
    "joined",
    "last_tested",
    "lock",
    "mean_accuracy",
    "measured",
    "metric_words",
    "parse_model",
    "planned_runs",
    "rare_classes",
    "read_file",
    "read_tensors",
    "replace_file",
    "replace_text",
    "replay",
    "sample",
    "scalar_of",
    "similarity_of",
    "store_tensors",
    "summarise",
    "sync_folder",
    "tells_profiles",
    "threshold_of",
    "told_scalars",
    "true_clusters_of",
    "unfit",
]
