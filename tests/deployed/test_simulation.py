"""The example app by ``flwr run``, in a simulation, without a network."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

from cadis.experiment import resolve, run_experiment
from deployed_support import PATH, free_port, listens
from processes import processes, wait_until
from support import same

pytestmark = pytest.mark.deployment

APP = Path(__file__).parents[2] / "examples" / "flower"


def test_the_example_gives_what_cadis_run_gives(tmp_path: Path) -> None:
    port, home = str(free_port()), tmp_path / "home"
    home.mkdir()
    address = f'[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    (home / "config.toml").write_text(address, encoding="utf-8")
    environment = PATH | {"FLWR_HOME": str(home), "CADIS_STATE": str(tmp_path / "state")}
    server = ["flower-superlink", "--insecure", "--simulation", "--port", port]
    nodes = ["--federation-config", "num-supernodes=6 client-resources-num-cpus=1"]
    options = ["--run-config", f"rounds=2 epochs=1 per-round=4 out='{tmp_path / 'run'}'"]
    with processes(tmp_path) as started:
        command = [*server, "--disable-runtime-dependency-installation"]
        started.start("superlink", command, environment)
        wait_until(lambda: listens(int(port)), "the server listens")
        run: list[str | Path] = ["flwr", "run", APP, "here", "--stream", *nodes, *options]
        assert started.finish("run", run, environment) == 0
        assert (tmp_path / "run" / "summary.json").is_file(), started.said("run")
    assert not started.alive()
    given = {"clients": 6, "rounds": 2, "per_round": 4, "epochs": 1, "stack": False}
    embedded = run_experiment(resolve({}, given), tmp_path / "embedded")
    found = load_file(tmp_path / "run" / "model.safetensors")
    for name, tensor in embedded.model.state_dict().items():
        assert same(found[name], tensor.contiguous())
