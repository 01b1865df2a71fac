"""Check an installation of the wheel without extras; ``make package`` runs it.

The Python of a new environment runs it in an empty folder outside the checkout. It checks the
command, the library, the files of the package, and the messages about missing extras.
"""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

COMMAND = Path(sys.executable).with_name("cadis")
HEAVY = ("flwr", "ray", "mlflow", "wandb", "tensorboard", "datasets", "onnx", "pyarrow", "pytest")
APP = ("LICENSE", "pyproject.toml", *(f"cadis_app/{n}_app.py" for n in ("client", "server")))
PROGRAM = """
import torch, cadis
x = torch.randn(400, 20, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] > 0).long()
clients = [(x[i::4], y[i::4]) for i in range(4)]
model = torch.nn.Linear(20, 2)
result = cadis.run(model, clients, (x, y), rounds=5, lr=0.05, method=cadis.CADIS())
assert result.accuracy > 0.8, result.accuracy
assert len(result.history) == 5
"""


def cadis(*arguments: str, code: int = 0) -> str:
    """Run the command; check its exit code and that there is no traceback; return its output."""
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == code, f"cadis {' '.join(arguments)}: {done.returncode}\n{output}"
    assert "Traceback" not in output, output
    return output


def check_installation() -> None:
    """Check that the installed package is used, and that no heavy package is installed."""
    package = Path(str(files("cadis")))
    assert package.is_relative_to(sys.prefix), f"not the installed package: {package}"
    assert not os.environ.get("PYTHONPATH")
    assert [name for name in HEAVY if find_spec(name)] == []
    assert cadis("--version") == f"cadis, version {version('cadis')}\n"


def check_files() -> None:
    """Check that the package has its data files."""
    package = Path(str(files("cadis")))
    assert (package / "py.typed").exists()
    app = package / "flower" / "app"
    assert not app.is_symlink()
    assert [name for name in APP if not (app / name).is_file()] == []
    assert (package / "report" / "page" / "assets" / "echarts.min.js").stat().st_size > 1e6
    assert re.search(r"cifar10-mc-10\b", cadis("presets"))
    assert "fedavg" in cadis("methods")


def check_runs() -> None:
    """Check runs and their reports, from the command and from Python."""
    cadis("run", "--rounds", "2", "--out", "runs/cadis")
    cadis("run", "--rounds", "2", "--out", "runs/fedavg", "--method", "fedavg")
    assert len(Path("runs/cadis/history.jsonl").read_text().splitlines()) == 2
    assert any(Path("runs/cadis/figures").iterdir())
    cadis("report", "runs/cadis", "runs/fedavg", "--out", "report")
    page = Path("report/report.html").read_text(encoding="utf-8")
    assert "echarts" in page
    assert "FedAvg" in page
    cadis("partition", "--out", "clients.json")
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


def check_extras() -> None:
    """Check that a missing extra is named in one sentence."""
    for tracker in ("tensorboard", "wandb", "mlflow"):
        output = cadis("run", "--rounds", "1", "--out", "tracked", "--track", tracker, code=2)
        assert "pip install 'cadis[trackers]'" in " ".join(output.split()), output
    assert "pip install 'cadis[flower]'" in cadis("deploy", "init", "federation", code=2)
    for module, extra in (("flower", "flower"), ("data.partition.flower_datasets", "datasets")):
        command = [sys.executable, "-c", f"import cadis.{module}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert f"pip install 'cadis[{extra}]'" in done.stderr, done.stderr


if __name__ == "__main__":
    for check in (check_installation, check_files, check_runs, check_extras):
        print(check.__name__.replace("_", " "), "...", flush=True)
        check()
