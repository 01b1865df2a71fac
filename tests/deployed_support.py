"""A real deployment on this machine, as an operator would have it: by the scripts of ``init``."""

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
"""The largest difference of two parameters; they differ only by the order of sums."""

SITES = ("north", "south", "west")
DATA = dict(zip(SITES, small_federation().clients[1:4], strict=True))
"""The first two are alike."""
PROGRAMS = Path(sys.executable).parent
TASK = "dataset='sites' classes='0,1,2,3,4' shape='1x4x4' model='mlp' epochs=2 batch-size=4 lr=0.1"
PATH = {"PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}
"""Flower's programs start each other by name."""


@dataclass(frozen=True)
class Deployment:
    """A server and its sites.

    Attributes:
        folder: what ``cadis deploy init`` has written.
        started: all processes.
        port: of the server.
    """

    folder: Path
    started: Processes
    port: int

    def write_data(self) -> None:
        """Every site's own, and the server's."""
        test = small_federation().test
        save_file({"inputs": test.inputs, "labels": test.labels}, self.test_data)
        for site, own in DATA.items():
            train = {"inputs": own.inputs, "labels": own.labels}
            apart = {"test_inputs": own.inputs.clone(), "test_labels": own.labels.clone()}
            save_file(train | apart, self.folder / "sites" / site / "own.safetensors")

    def start_site(self, site: str) -> None:
        """Start a site with data of its own."""
        place = self.folder / "sites" / site
        data = f"tensors='{place / 'own.safetensors'}'"
        self.started.start(site, [place / "start.sh", "--node-config", data], PATH)

    def send_signal(self, number: signal.Signals, program: str = "", site: str = "") -> None:
        """Send a signal to all processes of a program, of one site or of all."""
        found = self._processes(program, site)
        assert found, f"no process of {program} at {site}"
        for pid in found:
            os.kill(pid, number)

    def busy(self, site: str) -> bool:
        """Whether a site is at work for a round."""
        return bool(self._processes("flwr-clientapp", site))

    def said(self) -> str:
        """What all processes have written."""
        return "\n".join(f"{p.name}:\n{self.started.said(p.stem)}" for p in self.started.logs())

    def online(self) -> int:
        """How many sites the server calls online."""
        environment = {**os.environ, **PATH, "FLWR_HOME": str(self.folder / "flower")}
        command = ["flwr", "supernode", "list", "deployment", "--format", "json"]
        listed = subprocess.run(command, env=environment, capture_output=True, check=True)
        nodes = json.loads(listed.stdout)["nodes"]
        return sum(node["status"] == "online" for node in nodes)

    def run(
        self, method: str, rounds: int, resume: Path | None = None, more: str = ""
    ) -> tuple[subprocess.Popen[bytes], Path]:
        """Start ``run.sh`` or ``resume.sh``; its process, and the folder of the run."""
        options = f"method='{method}' rounds={rounds} {TASK} test='{self.test_data}' {more}"
        name = f"{method}-{len(list((self.folder / 'runs').iterdir()))}"
        script = [self.folder / "run.sh"] if resume is None else [self.folder / "resume.sh", resume]
        process = self.started.start(name, [*script, "--run-config", options], PATH)
        wait_until(lambda: "Results: " in self.started.said(name), "the script has begun", 10)
        return process, Path(self.started.said(name).partition("Results: ")[2].splitlines()[0])

    @property
    def test_data(self) -> Path:
        """What the server tests on."""
        return self.folder / "superlink" / "test.safetensors"

    def _processes(self, program: str, site: str) -> list[int]:
        """Those of a program, of those that work in a site's folder if one is given."""
        place = self.folder / "sites" / site
        return [
            pid
            for pid in self.started.alive()
            if program in _command_line(pid) and (not site or _folder_of(pid) == place)
        ]


def free_port() -> int:
    """A port with some free ones after it, as far as one can know."""
    with closing(socket.socket()) as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1]) % 20000 + 20000


def listens(port: int) -> bool:
    """Whether someone answers."""
    with closing(socket.socket()) as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _folder_of(pid: int) -> Path | None:
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return None


def check_like_embedded(folder: Path, method: str, rounds: int) -> None:
    """The stored model is that of the embedded engine, from the same data and seed."""
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
    found, several = load_file(folder / "model.safetensors"), len(expected.models) > 1
    for model_name, trained in expected.models.items():
        for name, tensor in trained.state_dict().items():
            stored = found[f"{model_name}/{name}" if several else name]
            torch.testing.assert_close(stored, tensor, rtol=0, atol=TOLERANCE)


def history(folder: Path) -> list[RoundRecord]:
    return RunFolder(folder).read_history()


def names(record: RoundRecord) -> list[str]:
    return sorted(map(str, record.participants))
