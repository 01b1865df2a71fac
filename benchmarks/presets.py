"""Recovery of the clusters by the presets: ``python -m benchmarks.presets [NAME...]``.

Runs the first rounds of the paper's CADIS on each preset with true clusters, and prints one line
each; this takes from half a minute (MNIST) to ten minutes (CIFAR, 50 clients per round) on two
cores. The paper tuned its thresholds for similarities of weights; here updates are compared, as in
its text.
"""

import sys
import tempfile
from pathlib import Path

from benchmarks.similarity import compute_agreements
from cadis.algorithm.methods import CADISPaper
from cadis.experiment import list_presets, read_preset, resolve, run_experiment
from cadis.store import RunFolder

_CLIENTS_TRAINED = 20
"""Number of clients to train; it decides the number of rounds."""


def main(names: list[str]) -> None:
    """Run the presets and print the agreement of each."""
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
            found = compute_agreements(RunFolder(Path(folder) / "run"), (paper, default))
        if found:
            line = f"{name}: {paper} {found[paper]:.2f}, {default} {found[default]:.2f}"
            print(f"{line}  (rounds: {rounds})", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or [name for name in list_presets() if not name.startswith("pill")])
