"""All methods in Flower's simulation: ``python simulated.py FOLDER`` writes the final models."""

import sys
from pathlib import Path

from flwr.app import Context
from flwr.server.superlink.fleet.vce.backend.backend import BackendConfig
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from safetensors.torch import save_file

from flower_support import FEDERATED, small_app, train_small
from support import small_model


def main(folder: Path) -> None:
    """Run one simulation, and in it one federation for each method."""
    server, model = ServerApp(), small_model(batch_norm=True)

    @server.main()
    def serve(grid: Grid, _context: Context) -> None:
        for method in FEDERATED:
            arrays = train_small(method, grid, model)
            save_file(arrays.to_torch_state_dict(), folder / f"{method.name}.safetensors")

    resources: BackendConfig = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}}
    run_simulation(server, small_app(folder, model=model), 5, backend_config=resources)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
