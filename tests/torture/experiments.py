"""Small experiments to attack, and the comparison of their results."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from torture.outcomes import Finding
from torture.victim import Ending, make_command, run_to_end

_COMMON_OPTIONS = ["--epochs", "1", "--batch-size", "64", "--per-round", "4"]
_DATA_OPTIONS = ["--clients", "6", "--ratio", "3:2:1"]
_RECORD_KEYS = ["round", "accuracy", "loss", "class_accuracy", "participants", "weights", "report"]
_RECORD_KEYS += [
    "rejected",
    "client_accuracy",
    "measures",
    "client_loss",
    "models",
    "client_models",
]
"""Keys of a round in docs/reference/files.md, except its seconds."""

_DRAFTS = ("draft", "tmp", "temp", "partial")


@dataclass(frozen=True)
class Experiment:
    """An experiment that a user starts from the command line."""

    method: str
    rounds: int = 3
    workers: int = 1
    epochs: int = 1
    pictures: Path | None = None

    def start(self, run: Path) -> list[str]:
        """Return the arguments to start it."""
        data = _DATA_OPTIONS
        if self.pictures is not None:
            data = ["--dataset", f"images:{self.pictures}", "--image-size", "16"]
        method = ["--method", self.method, "--model", "mlp", *_COMMON_OPTIONS]
        method[method.index("--epochs") + 1] = str(self.epochs)
        return ["run", *method, *data, *self._changeable_options(), "--out", str(run)]

    def resume(self, run: Path) -> list[str]:
        """Return the arguments to resume it, with all options that may change."""
        return ["run", "--resume", *self._changeable_options(), "--out", str(run)]

    def _changeable_options(self) -> list[str]:
        numbers = {"rounds": self.rounds, "workers": self.workers, "test-clients": 1}
        return [part for name, n in numbers.items() for part in (f"--{name}", str(n))]


def run_undisturbed(experiment: Experiment, run: Path, draw_figures: bool = False) -> Path:
    """Return the folder of an undisturbed run; run it unless it exists."""
    if not run.exists():
        run.parent.mkdir(parents=True, exist_ok=True)
        work = make_command(experiment.start(run), draw_figures=draw_figures)
        ending = run_to_end(work, run.with_name(f"{run.name}-log"))
        if ending.code != 0:
            raise RuntimeError(f"an undisturbed run fails: {ending.stderr}")
    return run


def find_difference(run: Path, reference: Path) -> str | None:
    """Return the first difference between two finished runs; None if they are identical."""
    return (
        _compare_models("model.safetensors", run, reference)
        or _compare_histories(run, reference)
        or _compare_summaries(run, reference)
        or _compare_models("best.safetensors", run, reference)
    )


def _compare_models(name: str, run: Path, reference: Path) -> str | None:
    if (run / name).is_file() != (reference / name).is_file():
        return f"there is no {name}"
    if _read_tensors(run / name) != _read_tensors(reference / name):
        return f"{name} has other numbers"
    return None


def _compare_histories(run: Path, reference: Path) -> str | None:
    records, expected = read_history(run), read_history(reference)
    if len(records) != len(expected):
        return f"history.jsonl has {len(records)} rounds, not {len(expected)}"
    for record, other in zip(records, expected, strict=True):
        for key in _RECORD_KEYS:
            if record.get(key) != other.get(key):
                return f"history.jsonl has another {key} in round {other['round']}"
    return None


def read_history(run: Path) -> list[dict[str, Any]]:
    lines = (run / "history.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def find_leftover(run: Path, reference: Path) -> str | None:
    """Return a file that an undisturbed run does not have, in the folder or beside it."""
    expected = _list_files(reference)
    files = {name for name in _list_files(run) if not _is_inside_file(name, expected)}
    strange = sorted(name for name in files - expected if not name.startswith("checkpoint/"))
    parts = {name: Path(name).name.lower().split(".") for name in sorted(files - expected)}
    drafts = [name for name in parts if any(part.startswith(_DRAFTS) for part in parts[name])]
    stored, expected_stored = (
        [name for name in names if name.startswith("checkpoint/")] for names in (files, expected)
    )
    if strange or drafts:
        return f"{(strange or drafts)[0]} is left over"
    if len(stored) > len(expected_stored):
        return f"the checkpoint has {len(stored)} files, not {len(expected_stored)}"
    if beside := [path.name for path in run.parent.iterdir() if path != run]:
        return f"{beside[0]} is left over beside the run"
    return None


def _is_inside_file(name: str, files: set[str]) -> bool:
    """Return whether a path is in a folder that was a file, which cadis must not delete."""
    return any(parent.suffix or str(parent) in files for parent in Path(name).parents)


def judge_ending(ending: Ending, run: Path, reference: Path) -> Finding:
    """Return the finding about a run that should have finished."""
    if fault := ending.find_fault():
        return fault
    if ending.code:
        return Finding("reported", ending.sentence)
    try:
        if what := find_difference(run, reference):
            return Finding("silent change", what)
    except Exception as error:  # a damaged file may raise anything
        return Finding("silent change", f"it finished, but cannot be read: {error}")
    if what := find_leftover(run, reference):
        return Finding("left over", what)
    return Finding("same")


def _read_tensors(path: Path) -> dict[str, tuple[str, bytes]]:
    tensors = load_file(path) if path.is_file() else {}
    return {name: (str(t.dtype), t.numpy().tobytes()) for name, t in tensors.items()}


def _compare_summaries(run: Path, reference: Path) -> str | None:
    summary, expected = (
        json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        for folder in (run, reference)
    )
    for key in expected:
        if key != "seconds" and summary.get(key) != expected[key]:
            return f"summary.json has another {key}"
    return None


def _list_files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


@dataclass(frozen=True)
class Recovery:
    """The attempt of a user to finish a disturbed run."""

    experiment: Experiment
    run: Path
    reference: Path
    saved: int
    logs: Path
    resume_first: bool = True
    draw_figures: bool = False

    def execute(self) -> Finding:
        """Resume or restart the run; only the result of the reference is good."""
        ending = self._resume() if self.resume_first else self._start_again()
        finding = judge_ending(ending, self.run, self.reference)
        if finding.verdict == "reported":
            return Finding("dead end", finding.reason)
        if ending.code == 0 and ending.rounds and ending.rounds[0] <= self.saved:
            return Finding("lost", f"round {self.saved} was saved; it began at {ending.rounds[0]}")
        return finding

    def _resume(self) -> Ending:
        ending = self._run_cli(self.experiment.resume(self.run), "resumed")
        if ending.is_refused and "no run" in ending.sentence.lower():
            return self._run_cli(self.experiment.start(self.run), "started-again")
        return ending

    def _start_again(self) -> Ending:
        ending = self._run_cli(self.experiment.start(self.run), "started-again")
        return (
            self._run_cli(self.experiment.resume(self.run), "resumed")
            if ending.is_refused
            else ending
        )

    def _run_cli(self, arguments: list[str], name: str) -> Ending:
        return run_to_end(make_command(arguments, draw_figures=self.draw_figures), self.logs / name)
