"""A real deployment on one machine, run with the scripts of ``cadis deploy init``."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import cadis
from cadis.models import MODELS
from cadis.rng import derive_seed
from cadis.server import RoundRecord
from cadis.store import RunFolder
from processes import Processes, wait_until
from support import small_federation

TOLERANCE = 1e-7
"""Maximum difference of two parameters; only the order of sums differs."""

SITES = ("north", "south", "west")
DATA = dict(zip(SITES, small_federation().clients[1:4], strict=True))
"""Data of each site; the first two have the same classes."""
PROGRAMS = Path(sys.executable).parent
TASK = "dataset='sites' classes='0,1,2,3,4' shape='1x4x4' model='mlp' epochs=2 batch-size=4 lr=0.1"
PATH = {"PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}
"""Flower's programs start each other by name."""


@dataclass(frozen=True)
class Deployment:
    """A server and its sites.

    Attributes:
        folder: the folder that ``cadis deploy init`` has written.
        started: all processes of the deployment.
        port: port of the server.
    """

    folder: Path
    started: Processes
    port: int

    def write_data(self) -> None:
        """Write the data of each site, and the test set of the server."""
        test = small_federation().test
        save_file({"inputs": test.inputs, "labels": test.labels}, self.test_data)
        for site, data in DATA.items():
            train = {"inputs": data.inputs, "labels": data.labels}
            held_out = {"test_inputs": data.inputs.clone(), "test_labels": data.labels.clone()}
            save_file(train | held_out, self.folder / "sites" / site / "own.safetensors")

    def start_site(self, site: str) -> None:
        """Start a site with its own data."""
        folder = self.folder / "sites" / site
        data = f"tensors='{folder / 'own.safetensors'}'"
        self.started.start(site, [folder / "start.sh", "--node-config", data], PATH)

    def send_signal(self, number: signal.Signals, program: str = "", site: str = "") -> None:
        """Send a signal to all processes of a program, of one site or of all."""
        pids = self._find_processes(program, site)
        assert pids, f"no process of {program} at {site}"
        for pid in pids:
            os.kill(pid, number)

    def is_busy(self, site: str) -> bool:
        """Return whether a site is training."""
        return bool(self._find_processes("flwr-clientapp", site))

    def read_logs(self) -> str:
        """Return the output of all processes."""
        return "\n".join(
            f"{p.name}:\n{self.started.read_log(p.stem)}" for p in self.started.log_paths()
        )

    def count_online(self) -> int:
        """Return the number of sites that the server lists as online."""
        environment = {**os.environ, **PATH, "FLWR_HOME": str(self.folder / "flower")}
        command = ["flwr", "supernode", "list", "deployment", "--format", "json"]
        result = subprocess.run(command, env=environment, capture_output=True, check=True)
        nodes = json.loads(result.stdout)["nodes"]
        return sum(node["status"] == "online" for node in nodes)

    def run(
        self, method: str, rounds: int, resume: Path | None = None, more: str = ""
    ) -> tuple[subprocess.Popen[bytes], Path]:
        """Start ``run.sh`` or ``resume.sh``; return its process and the folder of the run."""
        options = f"method='{method}' rounds={rounds} {TASK} test='{self.test_data}' {more}"
        name = f"{method}-{len(list((self.folder / 'runs').iterdir()))}"
        script = [self.folder / "run.sh"] if resume is None else [self.folder / "resume.sh", resume]
        process = self.started.start(name, [*script, "--run-config", options], PATH)
        wait_until(lambda: "Results: " in self.started.read_log(name), "the script has started", 10)
        return process, Path(self.started.read_log(name).partition("Results: ")[2].splitlines()[0])

    @property
    def test_data(self) -> Path:
        """Path of the test set of the server."""
        return self.folder / "superlink" / "test.safetensors"

    def _find_processes(self, program: str, site: str) -> list[int]:
        """Return the processes of a program, only those in the folder of ``site`` if given."""
        folder = self.folder / "sites" / site
        return [
            pid
            for pid in self.started.list_alive()
            if program in _read_command_line(pid) and (not site or _read_folder(pid) == folder)
        ]


def find_free_port() -> int:
    """Return a port that is probably free, as are the next ones."""
    with closing(socket.socket()) as connection:
        connection.bind(("127.0.0.1", 0))
        return int(connection.getsockname()[1]) % 20000 + 20000


def is_listening(port: int) -> bool:
    """Return whether a process listens on the port."""
    with closing(socket.socket()) as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def _read_command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _read_folder(pid: int) -> Path | None:
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return None


def check_equals_engine(folder: Path, method: str, rounds: int) -> None:
    """Check that the stored model equals that of the engine with the same data and seed."""
    torch.manual_seed(derive_seed(0, "model"))
    model = MODELS["mlp"](1, 4, 4, 5)
    clients, test = list(DATA.values()), small_federation().test
    expected = cadis.run(
        model,
        clients,
        test,
        rounds=rounds,
        method=method,
        epochs=2,
        batch_size=4,
        lr=0.1,
        client_ids=SITES,
        stack=False,
    )
    tensors, has_several = load_file(folder / "model.safetensors"), len(expected.models) > 1
    for model_name, module in expected.models.items():
        for name, tensor in module.state_dict().items():
            stored = tensors[f"{model_name}/{name}" if has_several else name]
            torch.testing.assert_close(stored, tensor, rtol=0, atol=TOLERANCE)


def read_history(folder: Path) -> list[RoundRecord]:
    return RunFolder(folder).read_history()


def sort_participants(record: RoundRecord) -> list[str]:
    return sorted(map(str, record.participants))
