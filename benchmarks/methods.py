"""What a round of each method costs, against one of FedAvg in turns."""

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import median

import torch

from benchmarks.measure import Measured
from benchmarks.pictures import random_pictures
from cadis.data import Examples
from cadis.engine import Engine, EngineSettings, Federation
from cadis.experiment import method_variants, resolve
from cadis.experiment.variants import ALL
from cadis.models import cnn
from cadis.rng import one_thread
from cadis.training import LocalSettings

_CLIENTS, _PER_ROUND, _PICTURES = 10, 5, 96
_BY_DEFINITION = {"ifca": "passes over the data with every model", "singleset": "all data"}
"""Methods that train or test more by definition, and what."""


def _engine(name: str, rounds: int, folder: Path) -> Engine:
    """The FedAvg CNN on pictures of 28 x 28; each client has as many, half of them take part."""
    (variant,) = method_variants([name], {}, {})
    algorithm = resolve(variant.options, {}).algorithm
    owned = [Examples(*random_pictures(_PICTURES, n)) for n in range(_CLIENTS)]
    federation = Federation(owned, owned[0])
    local = LocalSettings(epochs=2, batch_size=8, lr=0.001)
    settings = EngineSettings(
        rounds, _PER_ROUND, workers=2, device="cpu", local=local, test_clients=0, eval_every=rounds
    )
    torch.manual_seed(0)
    return Engine(cnn(1, 28, 28, 10), federation, algorithm, settings, folder)


def _rounds(name: str, rounds: int) -> Iterator[float]:
    """Seconds of each round, whenever it is asked for."""
    with tempfile.TemporaryDirectory() as folder:
        engine = _engine(name, rounds + 1, Path(folder))
        with closing(engine.rounds(engine.start)) as results:
            for result in results:
                yield result.record.seconds.total


@one_thread()
def rounds_of_all(rounds: int) -> list[Measured]:
    """A whole round of each method / one of FedAvg's, in turns; the first is not counted."""
    rows = []
    for name in ALL:
        if name in ("fedavg", *_BY_DEFINITION):
            continue
        pairs = list(zip(_rounds(name, rounds), _rounds("fedavg", rounds), strict=True))[1:rounds]
        value = median(ours / theirs for ours, theirs in pairs)
        note = f"{1e3 * median(theirs for _, theirs in pairs):.0f} ms, FedAvg; {len(pairs)} rounds"
        rows.append(Measured(f"round of {name} / of fedavg, FedAvg CNN", value, 1.5, note=note))
    return rows
