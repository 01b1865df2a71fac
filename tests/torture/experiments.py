"""Tiny experiments to do harm to, and whether two of them ended alike."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from torture.outcomes import Finding
from torture.victim import Ending, command, run_to_end

_ALWAYS = ["--epochs", "1", "--batch-size", "64", "--per-round", "4"]
_DEALT = ["--clients", "6", "--ratio", "3:2:1"]
_ROUND = ["round", "accuracy", "loss", "class_accuracy", "participants", "weights", "report"]
_ROUND += ["rejected", "client_accuracy", "measures", "client_loss", "models", "client_models"]
"""What docs/runs.md says of a round, but its seconds."""

_DRAFTS = ("draft", "tmp", "temp", "partial")


@dataclass(frozen=True)
class Experiment:
    """What a user types."""

    method: str
    rounds: int = 3
    workers: int = 1
    epochs: int = 1
    pictures: Path | None = None

    def begin(self, run: Path) -> list[str]:
        data = _DEALT
        if self.pictures is not None:
            data = ["--dataset", f"images:{self.pictures}", "--image-size", "16"]
        method = ["--method", self.method, "--model", "mlp", *_ALWAYS]
        method[method.index("--epochs") + 1] = str(self.epochs)
        return ["run", *method, *data, *self._free(), "--out", str(run)]

    def resume(self, run: Path) -> list[str]:
        """The command that goes on with it; it names all that may change."""
        return ["run", "--resume", *self._free(), "--out", str(run)]

    def _free(self) -> list[str]:
        numbers = {"rounds": self.rounds, "workers": self.workers, "test-clients": 1}
        return [part for name, n in numbers.items() for part in (f"--{name}", str(n))]


def undisturbed(experiment: Experiment, run: Path, draws: bool = False) -> Path:
    """The folder of a run that nothing happened to; made unless it is there."""
    if not run.exists():
        run.parent.mkdir(parents=True, exist_ok=True)
        work = command(experiment.begin(run), draws=draws)
        ending = run_to_end(work, run.with_name(f"{run.name}-log"))
        if ending.code != 0:
            raise RuntimeError(f"an undisturbed run fails: {ending.complained}")
    return run


def difference(run: Path, reference: Path) -> str | None:
    """What differs between two finished runs, None if they are alike bit for bit."""
    return (
        _other_model("model.safetensors", run, reference)
        or _other_history(run, reference)
        or _other_summary(run, reference)
        or _other_model("best.safetensors", run, reference)
    )


def _other_model(name: str, run: Path, reference: Path) -> str | None:
    if (run / name).is_file() != (reference / name).is_file():
        return f"there is no {name}"
    if _tensors(run / name) != _tensors(reference / name):
        return f"{name} has other numbers"
    return None


def _other_history(run: Path, reference: Path) -> str | None:
    mine, theirs = history(run), history(reference)
    if len(mine) != len(theirs):
        return f"history.jsonl has {len(mine)} rounds, not {len(theirs)}"
    for one, other in zip(mine, theirs, strict=True):
        for key in _ROUND:
            if one.get(key) != other.get(key):
                return f"history.jsonl has another {key} in round {other['round']}"
    return None


def history(run: Path) -> list[dict[str, Any]]:
    lines = (run / "history.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def left_over(run: Path, reference: Path) -> str | None:
    """A file that an undisturbed run does not leave, within the folder or beside it."""
    theirs = _names(reference)
    mine = {name for name in _names(run) if not _within_a_file(name, theirs)}
    strange = sorted(name for name in mine - theirs if not name.startswith("checkpoint/"))
    parts = {name: Path(name).name.lower().split(".") for name in sorted(mine - theirs)}
    drafts = [name for name in parts if any(part.startswith(_DRAFTS) for part in parts[name])]
    kept, expected = (
        [name for name in names if name.startswith("checkpoint/")] for names in (mine, theirs)
    )
    if strange or drafts:
        return f"{(strange or drafts)[0]} is left over"
    if len(kept) > len(expected):
        return f"the checkpoint has {len(kept)} files, not {len(expected)}"
    if beside := [path.name for path in run.parent.iterdir() if path != run]:
        return f"{beside[0]} is left over beside the run"
    return None


def _within_a_file(name: str, files: set[str]) -> bool:
    """Whether it is in a folder that was a file: that is not ours to clear away."""
    return any(parent.suffix or str(parent) in files for parent in Path(name).parents)


def judge_end(ending: Ending, run: Path, reference: Path) -> Finding:
    """What to say of a run that was to come to its end."""
    if fault := ending.fault():
        return fault
    if ending.code:
        return Finding("told", ending.sentence)
    try:
        if what := difference(run, reference):
            return Finding("silent change", what)
    except Exception as error:  # whatever a file that cannot be read may raise
        return Finding("silent change", f"it ended well, but cannot be read: {error}")
    if what := left_over(run, reference):
        return Finding("left over", what)
    return Finding("same")


def _tensors(path: Path) -> dict[str, tuple[str, bytes]]:
    tensors = load_file(path) if path.is_file() else {}
    return {name: (str(t.dtype), t.numpy().tobytes()) for name, t in tensors.items()}


def _other_summary(run: Path, reference: Path) -> str | None:
    mine, theirs = (
        json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        for folder in (run, reference)
    )
    for key in theirs:
        if key != "seconds" and mine.get(key) != theirs[key]:
            return f"summary.json has another {key}"
    return None


def _names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


@dataclass(frozen=True)
class Recovery:
    """What a user does next."""

    experiment: Experiment
    run: Path
    reference: Path
    saved: int
    logs: Path
    resumes_first: bool = True
    draws: bool = False

    def finding(self) -> Finding:
        """What comes of it: only the same end will do."""
        ending = self._resumed() if self.resumes_first else self._begun_again()
        found = judge_end(ending, self.run, self.reference)
        if found.verdict == "told":
            return Finding("dead end", found.why)
        if ending.code == 0 and ending.rounds and ending.rounds[0] <= self.saved:
            return Finding("lost", f"round {self.saved} was saved; it began at {ending.rounds[0]}")
        return found

    def _resumed(self) -> Ending:
        ending = self._do(self.experiment.resume(self.run), "resumed")
        if ending.refused and "no run" in ending.sentence.lower():
            return self._do(self.experiment.begin(self.run), "begun-again")
        return ending

    def _begun_again(self) -> Ending:
        ending = self._do(self.experiment.begin(self.run), "begun-again")
        return self._do(self.experiment.resume(self.run), "resumed") if ending.refused else ending

    def _do(self, arguments: list[str], name: str) -> Ending:
        return run_to_end(command(arguments, draws=self.draws), self.logs / name)
