"""Cost of writing every round to the disk."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from unittest import mock

from benchmarks.measure import Measurement, seconds
from cadis.analysis import describe_federation
from cadis.engine import Engine
from cadis.experiment import make_experiment, resolve
from cadis.store import RunFolder, RunWriter


def measure_saving(method: str, rounds: int) -> Measurement:
    """Measure saving a round of the default digits relative to the round itself."""
    built = make_experiment(resolve({}, {"method": method, "rounds": rounds + 1}))
    config, described = built.config, describe_federation(built.federation, 10)
    ratios, waited = list[float](), list[float]()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as temporary:  # /tmp may be in RAM
        folder = RunFolder(Path(temporary) / "run")
        settings, clients = config.settings.to_engine_settings(), folder.client_folder
        engine = Engine(built.model, built.federation, config.algorithm, settings, clients)
        with closing(RunWriter(folder, engine.algorithm, engine.layout)) as writer:
            writer.begin(engine.start, config.to_dict(), lambda _: described)
            for result in engine.rounds(engine.start):
                with _record_fsyncs() as spent:
                    took = seconds(partial(writer.save_round, result.record, result.state))
                ratios.append(took / result.record.seconds.total)
                waited.append(1e3 * sum(spent))
    name = f"keeping a round / the round, {method} on digits"
    note = f"of it {median(waited[1:]):.1f} ms a round waiting for the disk (fsync)"
    return Measurement(name, median(ratios[1:]), 0.1, note=note)


@contextmanager
def _record_fsyncs() -> Iterator[list[float]]:
    """Record the seconds of each fsync within this context."""
    spent, fsync = list[float](), os.fsync
    with mock.patch("os.fsync", lambda file: spent.append(seconds(lambda: fsync(file)))):
        yield spent
