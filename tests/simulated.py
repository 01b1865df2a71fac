"""Run methods in Flower's simulation; ``python simulated.py FOLDER`` writes their models."""

import sys
from pathlib import Path

from flwr.app import Context
from flwr.server.superlink.fleet.vce.backend.backend import BackendConfig
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from safetensors.torch import save_file

from flower_support import COMPOSITIONS, CUSTOM_CLASSES, METHOD_ALGORITHMS, small_app, train_small
from support import small_model


def main(folder: Path) -> None:
    """Run one simulation that trains every method and composition in turn."""
    server, model = ServerApp(), small_model(batch_norm=True)

    @server.main()
    def serve(grid: Grid, _context: Context) -> None:
        for name, algorithm in {**METHOD_ALGORITHMS, **COMPOSITIONS}.items():
            arrays = train_small(algorithm, grid, model)
            save_file(arrays.to_torch_state_dict(), folder / f"{name}.safetensors")

    resources: BackendConfig = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}}
    app = small_app(folder, model=model, custom_classes=CUSTOM_CLASSES)
    run_simulation(server, app, 5, backend_config=resources)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
