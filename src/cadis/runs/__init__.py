"""What a run leaves behind: records, checkpoints, and the folder that reports read."""

from cadis.runs.checkpoint import Checkpoint, replace_text
from cadis.runs.folder import RunFolder
from cadis.runs.keeper import MAY_CHANGE, Keeper
from cadis.runs.lock import is_locked, lock
from cadis.runs.measures import (
    agreement,
    cluster_agreement,
    clusters_found,
    mean_accuracy,
    rare_classes,
    replay,
    summarise,
)
from cadis.runs.record import (
    Member,
    Rejection,
    RoundRecord,
    RoundResult,
    RunState,
    Seconds,
    record_of,
)
from cadis.runs.study import Study, StudyFolder, Variant
from cadis.runs.toml import read_toml, to_toml

__all__ = [
    "MAY_CHANGE",
    "Checkpoint",
    "Keeper",
    "Member",
    "Rejection",
    "RoundRecord",
    "RoundResult",
    "RunFolder",
    "RunState",
    "Seconds",
    "Study",
    "StudyFolder",
    "Variant",
    "agreement",
    "cluster_agreement",
    "clusters_found",
    "is_locked",
    "lock",
    "mean_accuracy",
    "rare_classes",
    "read_toml",
    "record_of",
    "replace_text",
    "replay",
    "summarise",
    "to_toml",
]
