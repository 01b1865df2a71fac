"""Training a model on one client's data, testing it, and the server's half of a round."""

from cadis.training.device import Device, choose_device
from cadis.training.evaluation import Evaluation, check_labels, evaluate
from cadis.training.fit import check_fit, found_head
from cadis.training.local import LocalResult, LocalSettings, batch_sizes, train_locally, view_of
from cadis.training.server import ServerHalf, diverged, limited_counts

__all__ = [
    "Device",
    "Evaluation",
    "LocalResult",
    "LocalSettings",
    "ServerHalf",
    "batch_sizes",
    "check_fit",
    "check_labels",
    "choose_device",
    "diverged",
    "evaluate",
    "found_head",
    "limited_counts",
    "train_locally",
    "view_of",
]
