"""The paper's mathematics: pure functions of tensors. It imports nothing else of the package."""

from cadis.core.about import About
from cadis.core.aggregation import cluster_weights, example_weights, mean_state, weighted_mean
from cadis.core.auto_clusters import (
    Cut,
    ProfileClusters,
    after_round,
    contrast_cut,
    found_clusters,
    join,
)
from cadis.core.bandwidth import all_finite, fresh, in_chunks, squared_distance
from cadis.core.clustering import cluster, rescale, threshold_at
from cadis.core.distillation import (
    distillation_gradient,
    distillation_loss,
    divergence_without,
    not_true_loss,
)
from cadis.core.errors import CadisError, RunError
from cadis.core.message import ClientUpdate, Message
from cadis.core.pairs import ObservedPairs
from cadis.core.profiles import ClientProfiles, class_profiles, client_keys, cosines, unit
from cadis.core.reproducibility import derive_seed, generator_for, one_thread
from cadis.core.short_repr import short_repr
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
    "About",
    "CadisError",
    "ClientId",
    "ClientProfiles",
    "ClientUpdate",
    "Cut",
    "Message",
    "ModelState",
    "ObservedPairs",
    "ProfileClusters",
    "RunError",
    "SimilarityMatrix",
    "TensorState",
    "after_round",
    "all_finite",
    "balanced_loss",
    "cadis_limit",
    "checked_client_id",
    "class_profiles",
    "client_keys",
    "cluster",
    "cluster_weights",
    "contrast_cut",
    "cosine_bounds",
    "cosines",
    "derive_seed",
    "distillation_gradient",
    "distillation_loss",
    "divergence_without",
    "estimate_all",
    "example_weights",
    "expected_rounds_bound",
    "fedavg_limit",
    "found_clusters",
    "fresh",
    "generator_for",
    "ids_from_tensor",
    "ids_to_tensor",
    "in_chunks",
    "instance_similarity",
    "join",
    "mean_state",
    "not_true_loss",
    "one_thread",
    "present_classes",
    "rescale",
    "short_repr",
    "squared_distance",
    "threshold_at",
    "unit",
    "weighted_mean",
]
