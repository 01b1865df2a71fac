"""Time of a round of each method relative to FedAvg, alternating."""

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import median

import torch

from benchmarks.measure import Measurement
from benchmarks.pictures import make_random_images
from cadis.data import Samples
from cadis.engine import Engine, EngineSettings, Federation
from cadis.experiment import make_method_variants, resolve
from cadis.experiment.variants import ALL
from cadis.models import cnn
from cadis.rng import use_one_thread
from cadis.training import LocalSettings

_CLIENTS, _PER_ROUND, _PICTURES = 10, 5, 96
_BY_DEFINITION = {"ifca": "passes over the data with every model", "singleset": "all data"}
"""Methods that train or test more by definition, with the reason."""


def _build_engine(name: str, rounds: int, folder: Path) -> Engine:
    """Return an engine with the FedAvg CNN; half of the clients take part."""
    (variant,) = make_method_variants([name], {}, {})
    algorithm = resolve(variant.options, {}).algorithm
    owned = [Samples(*make_random_images(_PICTURES, n)) for n in range(_CLIENTS)]
    federation = Federation(owned, owned[0])
    local = LocalSettings(epochs=2, batch_size=8, lr=0.001)
    settings = EngineSettings(
        rounds, _PER_ROUND, workers=2, device="cpu", local=local, test_clients=0, eval_every=rounds
    )
    torch.manual_seed(0)
    return Engine(cnn(1, 28, 28, 10), federation, algorithm, settings, folder)


def _iterate_seconds(name: str, rounds: int) -> Iterator[float]:
    """Yield the seconds of each round."""
    with tempfile.TemporaryDirectory() as folder:
        engine = _build_engine(name, rounds + 1, Path(folder))
        with closing(engine.rounds(engine.start)) as results:
            for result in results:
                yield result.record.seconds.total


@use_one_thread()
def compare_methods(rounds: int) -> list[Measurement]:
    """Measure a round of each method relative to FedAvg; the first round is not counted."""
    rows = []
    for name in ALL:
        if name in ("fedavg", *_BY_DEFINITION):
            continue
        pairs = list(
            zip(_iterate_seconds(name, rounds), _iterate_seconds("fedavg", rounds), strict=True)
        )[1:rounds]
        value = median(ours / theirs for ours, theirs in pairs)
        note = f"{1e3 * median(theirs for _, theirs in pairs):.0f} ms, FedAvg; {len(pairs)} rounds"
        rows.append(Measurement(f"round of {name} / of fedavg, FedAvg CNN", value, 1.5, note=note))
    return rows
