"""Methods that keep one model for each cluster of clients."""

from cadis.algorithm.methods.clustered.cadis_clusters import CADISClusters
from cadis.algorithm.methods.clustered.cfl import CFL
from cadis.algorithm.methods.clustered.flhc import FLHC
from cadis.algorithm.methods.clustered.ifca import IFCA

__all__ = [
    "CFL",
    "FLHC",
    "IFCA",
    "CADISClusters",
]
