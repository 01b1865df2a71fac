"""What a run leaves behind: records, checkpoints, and the folder that reports read."""

from cadis.runs.checkpoint import Checkpoint
from cadis.runs.folder import RunFolder
from cadis.runs.keeper import Keeper
from cadis.runs.measures import (
    cluster_agreement,
    clusters_found,
    mean_accuracy,
    rare_classes,
    replay,
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
from cadis.runs.toml import read_toml, to_toml

__all__ = [
    "Checkpoint",
    "Keeper",
    "Member",
    "Rejection",
    "RoundRecord",
    "RoundResult",
    "RunFolder",
    "RunState",
    "Seconds",
    "cluster_agreement",
    "clusters_found",
    "mean_accuracy",
    "rare_classes",
    "read_toml",
    "record_of",
    "replay",
    "to_toml",
]
