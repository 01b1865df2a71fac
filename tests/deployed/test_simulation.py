"""Test of the example app with ``flwr run`` in a simulation, without a network."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

from cadis.experiment import resolve, run_experiment
from deployed_support import PATH, find_free_port, is_listening
from processes import processes, wait_until
from support import is_identical

pytestmark = pytest.mark.deployment

APP = Path(__file__).parents[2] / "examples" / "flower"


def test_example_app_equals_cadis_run(tmp_path: Path) -> None:
    port, home = str(find_free_port()), tmp_path / "home"
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
        wait_until(lambda: is_listening(int(port)), "the server listens")
        run: list[str | Path] = ["flwr", "run", APP, "here", "--stream", *nodes, *options]
        assert started.finish("run", run, environment) == 0
        assert (tmp_path / "run" / "summary.json").is_file(), started.read_log("run")
    assert not started.list_alive()
    run_options = {"clients": 6, "rounds": 2, "per_round": 4, "epochs": 1, "stack": False}
    embedded = run_experiment(resolve({}, run_options), tmp_path / "embedded")
    tensors = load_file(tmp_path / "run" / "model.safetensors")
    for name, tensor in embedded.model.state_dict().items():
        assert is_identical(tensors[name], tensor.contiguous())
