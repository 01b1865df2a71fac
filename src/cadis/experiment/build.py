"""From options to a federation and a model."""

import torch
from torch import nn

from cadis.core import CadisError, derive_seed, generator_for
from cadis.data import DATASETS, Subsets
from cadis.engine import Federation
from cadis.experiment.config import Settings
from cadis.models import MODELS
from cadis.partition import multi_cluster


def build_federation(settings: Settings) -> Federation:
    """The federation that the options describe; the same for all methods with one seed."""
    dataset = DATASETS[settings.dataset]()
    generator = generator_for(settings.seed, "partition")
    partition = multi_cluster(dataset.train.labels, settings.clients, settings.ratio, generator)
    return Federation(
        clients=Subsets(dataset.train, partition.indices),
        test=dataset.test,
        cluster_of_client=partition.cluster_of_client,
    )


def build_model(settings: Settings, federation: Federation) -> nn.Module:
    """The initial global model, with the inputs' shape and the labels' number of classes."""
    shape = federation.test.inputs.shape[1:]
    if len(shape) != 3:
        raise CadisError(f"The model '{settings.model}' wants pictures, not inputs of {shape}.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(settings.seed, "model"))
        return MODELS[settings.model](*shape, int(federation.test.labels.max()) + 1)
