"""CADIS: one file for each equation of the paper, and the method itself."""

from cadis.algorithm.methods.cadis.auto_clusters import (
    Cut,
    ProfileClusters,
    average_linkage,
    contrast_cut,
    found_clusters,
    update_profiles,
)
from cadis.algorithm.methods.cadis.cluster_participants import (
    Grouping,
    group_by_profiles,
    profile_clusters,
    profiles_of,
    signatures,
)
from cadis.algorithm.methods.cadis.clustering import cluster, rescale, threshold_at
from cadis.algorithm.methods.cadis.distillation import (
    distillation_gradient,
    distillation_loss,
    divergence_without,
    not_true_loss,
)
from cadis.algorithm.methods.cadis.method import CADIS, CADISPaper
from cadis.algorithm.methods.cadis.observed_pairs import ObservedPairs
from cadis.algorithm.methods.cadis.profiles import ClientProfiles, class_profiles
from cadis.algorithm.methods.cadis.similarity import (
    SimilarityMatrix,
    instance_similarity,
    running_mean,
)
from cadis.algorithm.methods.cadis.transitive import estimate_all
from cadis.algorithm.methods.cadis.weights import cluster_weights

__all__ = [
    "CADIS",
    "CADISPaper",
    "ClientProfiles",
    "Cut",
    "Grouping",
    "ObservedPairs",
    "ProfileClusters",
    "SimilarityMatrix",
    "average_linkage",
    "class_profiles",
    "cluster",
    "cluster_weights",
    "contrast_cut",
    "distillation_gradient",
    "distillation_loss",
    "divergence_without",
    "estimate_all",
    "found_clusters",
    "group_by_profiles",
    "instance_similarity",
    "not_true_loss",
    "profile_clusters",
    "profiles_of",
    "rescale",
    "running_mean",
    "signatures",
    "threshold_at",
    "update_profiles",
]
