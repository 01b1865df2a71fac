"""What a run leaves behind: records, checkpoints, and the folder that reports read."""

from cadis.data.user_files import read_toml, to_toml
from cadis.runs.arrays import PackedMatrix, numbers
from cadis.runs.checkpoint import Checkpoint, read_tensors, store_tensors
from cadis.runs.description import ModelDescription, ModelInputs
from cadis.runs.folder import RunFolder, cannot_be_written
from cadis.runs.history import HistoryWriter
from cadis.runs.lock import Lock, is_locked, lock
from cadis.runs.measures import (
    agreement,
    cluster_agreement,
    mean_accuracy,
    rare_classes,
    replay,
    summarise,
)
from cadis.runs.model_file import parse_model
from cadis.runs.record import (
    Member,
    ModelRecord,
    Rejection,
    RoundRecord,
    RoundResult,
    RunState,
    Seconds,
)
from cadis.runs.resuming import check_named
from cadis.runs.storage import DamagedError, StoredFile, replace_text, sync_folder
from cadis.runs.study import (
    PaperReport,
    Study,
    StudyFolder,
    Variant,
    cell_label,
    cell_name,
)
from cadis.runs.writer import MAY_CHANGE, RunWriter

__all__ = [
    "MAY_CHANGE",
    "Checkpoint",
    "DamagedError",
    "HistoryWriter",
    "Lock",
    "Member",
    "ModelDescription",
    "ModelInputs",
    "ModelRecord",
    "PackedMatrix",
    "PaperReport",
    "Rejection",
    "RoundRecord",
    "RoundResult",
    "RunFolder",
    "RunState",
    "RunWriter",
    "Seconds",
    "StoredFile",
    "Study",
    "StudyFolder",
    "Variant",
    "agreement",
    "cannot_be_written",
    "cell_label",
    "cell_name",
    "check_named",
    "cluster_agreement",
    "is_locked",
    "lock",
    "mean_accuracy",
    "numbers",
    "parse_model",
    "rare_classes",
    "read_tensors",
    "read_toml",
    "replace_text",
    "replay",
    "store_tensors",
    "summarise",
    "sync_folder",
    "to_toml",
]
