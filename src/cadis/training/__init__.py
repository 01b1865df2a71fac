"""Training a model on one client's data, and testing it."""

from cadis.training.evaluation import (
    Evaluation,
    accuracies,
    check_fit,
    check_labels,
    evaluate,
    found_head,
)
from cadis.training.local import (
    Client,
    Device,
    LocalSettings,
    batch_sizes,
    choose_device,
    reply_to,
    view_of,
)

__all__ = [
    "Client",
    "Device",
    "Evaluation",
    "LocalSettings",
    "accuracies",
    "batch_sizes",
    "check_fit",
    "check_labels",
    "choose_device",
    "evaluate",
    "found_head",
    "reply_to",
    "view_of",
]
