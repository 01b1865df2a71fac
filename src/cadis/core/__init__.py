"""The paper's mathematics: pure functions of tensors. It imports nothing else of the package."""

from cadis.core.aggregation import cluster_weights, example_weights, mean_state, weighted_mean
from cadis.core.bandwidth import all_finite, fresh, in_chunks, squared_distance
from cadis.core.clustering import cluster, rescale, threshold_at
from cadis.core.distillation import distillation_gradient, distillation_loss
from cadis.core.errors import CadisError, RunError
from cadis.core.message import ClientUpdate, Message
from cadis.core.pairs import ObservedPairs
from cadis.core.reproducibility import derive_seed, generator_for, one_thread
from cadis.core.similarity import SimilarityMatrix, instance_similarity
from cadis.core.state import (
    ClientId,
    ModelState,
    TensorState,
    checked_client_id,
    ids_from_tensor,
    ids_to_tensor,
)
from cadis.core.theory import (
    balanced_loss,
    cadis_limit,
    cosine_bounds,
    expected_rounds_bound,
    fedavg_limit,
    present_classes,
)
from cadis.core.transitive import estimate_all

__all__ = [
    "CadisError",
    "ClientId",
    "ClientUpdate",
    "Message",
    "ModelState",
    "ObservedPairs",
    "RunError",
    "SimilarityMatrix",
    "TensorState",
    "all_finite",
    "balanced_loss",
    "cadis_limit",
    "checked_client_id",
    "cluster",
    "cluster_weights",
    "cosine_bounds",
    "derive_seed",
    "distillation_gradient",
    "distillation_loss",
    "estimate_all",
    "example_weights",
    "expected_rounds_bound",
    "fedavg_limit",
    "fresh",
    "generator_for",
    "ids_from_tensor",
    "ids_to_tensor",
    "in_chunks",
    "instance_similarity",
    "mean_state",
    "one_thread",
    "present_classes",
    "rescale",
    "squared_distance",
    "threshold_at",
    "weighted_mean",
]
