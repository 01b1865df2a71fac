"""Who has what, for ``federation.json``."""

from typing import Any

import torch

from cadis.engine import Federation


def describe_federation(federation: Federation, num_classes: int) -> dict[str, Any]:
    """Who has what: one object a client, with its samples per class and its true cluster."""
    truth = federation.true_clusters
    clusters = [None] * len(federation.clients) if truth is None else truth.tolist()
    return {
        "classes": list(federation.classes or map(str, range(num_classes))),
        "clients": [
            {
                "id": client_id,
                "cluster": true_cluster,
                "samples": torch.bincount(labels, minlength=num_classes).tolist(),
            }
            for client_id, true_cluster, labels in zip(
                federation.client_ids, clusters, federation.labels(), strict=True
            )
        ],
    }
