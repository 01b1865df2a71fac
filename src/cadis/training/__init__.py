"""Training a model on one client's data, and testing it."""

from cadis.training.evaluation import Evaluation, evaluate
from cadis.training.local import LocalResult, LocalSettings, batch_sizes, train_locally, view_of

__all__ = [
    "Evaluation",
    "LocalResult",
    "LocalSettings",
    "batch_sizes",
    "evaluate",
    "train_locally",
    "view_of",
]
