"""Which clusters the paper's presets recover: ``python -m benchmarks.presets [NAME...]``.

The first rounds of the paper's CADIS on each preset with true clusters; a line for each as it ends,
which takes from half a minute (MNIST) to ten minutes (CIFAR, 50 clients a round) on two cores. The
paper tuned its thresholds for similarities of weights; here updates are compared, as its text says.
"""

import sys
import tempfile
from pathlib import Path

from benchmarks.similarity import agreements
from cadis.algorithm.methods import CADISPaper
from cadis.experiment import preset_names, read_preset, resolve, run_experiment
from cadis.store import RunFolder

_CLIENTS_TRAINED = 20
"""Rounds are run until so many clients have been trained."""


def main(names: list[str]) -> None:
    """Run and print."""
    default = float(CADISPaper().threshold)
    print(f"adjusted Rand index of the participants' clusters: paper's threshold, {default}")
    for name in names:
        options = read_preset(name)
        rounds = max(1, _CLIENTS_TRAINED // int(options["per_round"]))
        with tempfile.TemporaryDirectory() as folder:
            config = resolve(options, {"rounds": rounds})
            assert isinstance(config.method, CADISPaper)
            run_experiment(config, Path(folder) / "run")
            paper = float(config.method.threshold)
            found = agreements(RunFolder(Path(folder) / "run"), (paper, default))
        if found:
            line = f"{name}: {paper} {found[paper]:.2f}, {default} {found[default]:.2f}"
            print(f"{line}  (rounds: {rounds})", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or [name for name in preset_names() if not name.startswith("pill")])
