"""Model files, run folders and studies of a stranger that name code.

The code leaves a marker when it is imported or called, so that a test can see that it ran.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w
from click.testing import CliRunner
from PIL import Image

import cadis
from cadis._io import read_toml
from cadis.cli.command_line import commands
from cadis.experiment import make_method_variants, resolve, run_experiment
from cadis.report.page.content import make_page_data
from cadis.report.page.watching import WatchedFolder
from cadis.store import Study, StudyFolder
from cadis.store.checkpoint import Checkpoint
from cadis.store.storage import compute_digest
from hostile_descriptions import encode, make_description, make_tensors

_COMPARED: dict[str, Any] = {"rounds": 1, "epochs": 1, "workers": 1, "clients": 4, "ratio": "1"}
_OPTIONS = {**_COMPARED, "method": "fedavg"}
MARKER = "marker"

_CANARY = """
from pathlib import Path

Path({marker!r}).touch()


def net(*arguments, **more):
    Path({marker!r}).touch()


class Net:
    name = "net"
    probabilities = net
"""

NAMES = (
    "canary.py:net",
    "canary:net",
    "./canary.py:net",
    "sub/../canary.py:Net",
    "sub/canary.py:Net",
    "sub.canary:net",
    "{here}/canary.py:net",
    "../{folder}/canary.py:net",
    "my canary.py:net",
    "kanarek ł.py:net",
    " canary.py:net",
    "canary.py:net ",
    "canary.py",
    "canary.py:",
    "canary:Net.name",
    "os:abort",
    "os:_exit",
    "sys:exit",
    "builtins:eval",
    "builtins:exit",
    "subprocess:Popen",
    "importlib:import_module",
    "faulthandler:_sigabrt",
    "cadis.cli:main",
)
"""Names of code; ``{here}`` and ``{folder}`` stand for the current folder and its name."""

_PARTS = ("method", "sampler", "server_optimizer", "transforms", "task", "local_optimizer")
CONFIG_KEYS = (*_PARTS, "model", "dataset")


@dataclass(frozen=True)
class Attack:
    """A place in a file that names code, and a use of the file.

    Attributes:
        place: the field of a model file, or the option of a ``config.toml`` or ``study.json``.
        use: the command or function that reads the file.
        name: the code.
    """

    place: str
    use: str
    name: str = NAMES[0]

    @property
    def needs_code(self) -> bool:
        """Return whether the use needs the code, so that it must be refused."""
        if self.use in ("load", "predict"):
            return self.place not in _PARTS[:4] and self.place not in ("local_optimizer", "dataset")
        return (self.place, self.use) != ("architecture", "load-own-model")


def list_attacks() -> Iterator[Attack]:
    """Yield attacks: all names with one use of each kind of file, and all uses with one name."""
    for name in NAMES:
        yield Attack("architecture", "load", name)
        yield Attack("description-task", "load", name)
        yield Attack("model", "load", name)
        yield Attack("method", "run", name)
        yield Attack("model", "resume", name)
        yield Attack("dataset", "run", name)
    for use in ("load-best", "predict", "export", "load-own-model"):
        yield Attack("architecture", use)
        yield Attack("description-task", use)
    for key in CONFIG_KEYS:
        for use in ("run", "run-with-option", "sweep", "resume", "resume-checkpoint"):
            yield Attack(key, use)
        for use in ("report", "watch", "load", "predict"):
            yield Attack(key, use)
    for key in ("sampler", "model", "dataset"):
        for use in ("compare", "study", "study-python"):
            yield Attack(key, use)


def prepare_run(base: Path) -> Path:
    """Run a small federation whose folder the attacks change; return the folder."""
    run_experiment(resolve({}, _OPTIONS), base / "run")
    return base / "run"


def write_canaries(folder: Path) -> Path:
    """Write the code that the names refer to; return the path of its marker."""
    marker = folder / MARKER
    text = _CANARY.format(marker=str(marker))
    for name in ("canary.py", "sub/canary.py", "sub/__init__.py", "my canary.py", "kanarek ł.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return marker


def write_files(attack: Attack, run: Path) -> None:
    """Write the files of a stranger into the current folder: a run, a study and a model file."""
    here = Path.cwd()
    name = attack.name.format(here=here, folder=here.name)
    shutil.copytree(run, "run")
    description, tensors = make_description(), make_tensors()
    fields = {"architecture": "architecture", "description-task": "task"}
    config = read_toml(Path("run/config.toml"))
    if attack.place in fields:
        content = encode({**description, fields[attack.place]: name}, tensors)
        Path("model.safetensors").write_bytes(content)
        for file in ("model.safetensors", "best.safetensors"):
            _replace(Path("run"), file, content)
        without = {key: config[key] for key in config if key not in ("model", "task")}
        _replace(Path("run"), "config.toml", tomli_w.dumps(without).encode())
    else:
        config[attack.place] = [name] if attack.place == "transforms" else name
        _replace(Path("run"), "config.toml", tomli_w.dumps(config).encode())
        _write_study({attack.place: config[attack.place]})
    Path("own.py").write_text("from cadis.models import small_cnn as net\n")
    Image.new("L", (8, 8)).save("image.png")


def _write_study(hostile: dict[str, Any]) -> None:
    """Write a study whose variants have no common value of the hostile option and of ``lr``."""
    (variant,) = make_method_variants(["fedavg"], {}, _COMPARED)
    options = {**variant.options, **hostile}
    first = replace(variant, name="first", options={**options, "lr": 0.5})
    key, name = next(iter(hostile.items()))
    other = replace(variant, name="other", options={**options, key: f"{name}x"})
    StudyFolder(Path("study")).write(Study("compare", (first, other), (0,), ""))


def _replace(run: Path, name: str, content: bytes) -> None:
    """Replace a file of a run, and its digest and its copy in the checkpoint."""
    (run / name).write_bytes(content)
    checkpoint = Checkpoint(run / "checkpoint")
    manifest = checkpoint.read(checkpoint.list_manifests()[0])
    files = {**manifest.files, name: compute_digest(content)}
    config = content.decode() if name == "config.toml" else manifest.config
    checkpoint.commit(replace(manifest, files=files, config=config), None)


def use_files(attack: Attack, *trust: str) -> tuple[int, str]:
    """Use the files of a stranger; return the exit code and the output, or an error message."""
    uses: dict[str, Callable[[], object]] = {
        "load": lambda: [cadis.load(path) for path in _list_models(attack)],
        "load-best": lambda: cadis.load("run", "best"),
        "load-own-model": lambda: cadis.load(_list_models(attack)[0], model="own.py:net"),
        "study-python": lambda: cadis.compare(
            "fedprox", seeds=1, out="study", lr=1e30, **_COMPARED
        ),
        "report": lambda: make_page_data(cadis.analysis.read_results([Path("run")])),
        "watch": lambda: WatchedFolder(Path("run")).is_running(),
    }
    if attack.use in uses:
        try:
            uses[attack.use]()
        except (cadis.CadisError, cadis.RunError) as error:
            return 2, str(error)
        return 0, ""
    model = "model.safetensors" if Path("model.safetensors").exists() else "run"
    compare = ["compare", "--methods", "fedprox", "--seeds", "1", "--lr", "1e30"]  # diverges
    quick = [f"--{key}={value}" for key, value in _COMPARED.items()]
    arguments = {
        "predict": ["predict", model, "image.png"],
        "export": ["export", model, "--to", "state-dict", "--out", "model.pt"],
        "run": ["run", "run/config.toml"],
        "run-with-option": ["run", "run/config.toml", "--rounds", "2"],
        "compare": ["compare", "run/config.toml", "--methods", "fedavg", "--seeds", "1"],
        "sweep": ["sweep", "run/config.toml", "--grid", "lr=0.1"],
        "resume": ["run", "--resume", "--out", "run", "--rounds", "2"],
        "resume-checkpoint": ["run", "--resume", "--out", "run", "--rounds", "2"],
        "study": [*compare, *quick, "--out", "study"],
    }[attack.use]
    if attack.use == "resume-checkpoint":
        Path("run/config.toml").unlink()
    result = CliRunner().invoke(commands, [*arguments, *trust])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def _list_models(attack: Attack) -> list[str]:
    is_file = attack.place in ("architecture", "description-task")
    return ["model.safetensors", "run"] if is_file else ["run"]
