"""CADIS: the equations of the paper, one topic per file, and the method itself."""

from cadis.algorithm.methods.cadis.clustering import (
    average_linkage,
    cluster_by_threshold,
    compute_cluster_weights,
    compute_q_matrix,
    find_nearest_center,
    update_profiles,
)
from cadis.algorithm.methods.cadis.distillation import (
    distillation_gradient,
    masked_kl_divergence,
    not_true_loss,
)
from cadis.algorithm.methods.cadis.method import CADIS, CADISPaper
from cadis.algorithm.methods.cadis.profiles import ClientProfiles, compute_class_profiles
from cadis.algorithm.methods.cadis.similarity import (
    ObservedPairs,
    SimilarityMatrix,
    cumulative_similarity,
    instance_similarity,
)
from cadis.algorithm.methods.cadis.soft_weights import compute_soft_weights
from cadis.algorithm.methods.cadis.stable_clusters import StableClusters
from cadis.algorithm.methods.cadis.transitive import estimate_all
