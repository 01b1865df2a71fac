"""CADIS: one file for each equation of the paper, and the method itself."""

from cadis.algorithm.methods.cadis.clustering import (
    average_linkage,
    cluster,
    cluster_weights,
    found_clusters,
    rescale,
    update_profiles,
)
from cadis.algorithm.methods.cadis.distillation import (
    distillation_gradient,
    divergence_without,
    not_true_loss,
)
from cadis.algorithm.methods.cadis.method import CADIS, CADISPaper
from cadis.algorithm.methods.cadis.profiles import ClientProfiles, class_profiles
from cadis.algorithm.methods.cadis.similarity import (
    ObservedPairs,
    SimilarityMatrix,
    instance_similarity,
    running_mean,
)
from cadis.algorithm.methods.cadis.transitive import estimate_all
