"""Links, pipes and the like in place of files: a user's files never change, and nothing waits."""

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from random import Random

from cadis.cli.guard import run_with_exit_code
from cadis.report.page.watching import WatchedFolder
from support import draw_digits
from torture.disturbance import disturb_on_output, kill_self
from torture.experiments import Experiment, run_undisturbed
from torture.harm import copy_run
from torture.outcomes import Attack, Finding, Trial
from torture.victim import Work, make_command, run_to_end

_EXPERIMENT = Experiment("cadis", rounds=2)
_STUDY = ["compare", "--methods", "fedavg,cadis", "--seeds", "1", "--rounds", "1"]
_STUDY += ["--clients", "6", "--per-round", "4", "--epochs", "1", "--workers", "1"]
_SECONDS = 40.0
_FUTURE = (
    *("report.html", "results.csv", "runs.csv", "results.md", "results.tex", "model.pt", "lock"),
    *("figures", "figures/accuracy.png", "cells", "checkpoint", "checkpoint/clients", "cadis"),
    *("checkpoint/lock", "checkpoint/round-2.json", "checkpoint/round-2.safetensors", "."),
    *(".history.jsonl.draft", ".config.toml.draft", ".model.safetensors.draft", "MODEL_CARD.md"),
    *("summary.json", "model.safetensors", ".report.html.draft", ".results.csv.draft"),
    *("checkpoint/.round-2.json.draft", "figures/.accuracy.png.draft", ".study.json.draft"),
)
"""Names that commands will write, whether they exist or not."""


def prepare(base: Path) -> None:
    """Prepare a stopped run, a finished run, a study and pictures."""
    run_undisturbed(_EXPERIMENT, base / "finished")
    disturb = disturb_on_output("round 1/", kill_self)
    run_to_end(make_command(_EXPERIMENT.start(base / "stopped"), disturb), base / "log")
    run_to_end(make_command([*_STUDY, "--out", base / "study"]), base / "log")
    draw_digits(base / "pictures", 4)
    assert (base / "study" / "report.html").exists()
    assert (base / "stopped" / "history.jsonl").stat().st_size


def attempt(trial: Trial) -> tuple[str, Finding]:
    """Replace a file or folder of a run or a study, then call commands."""
    random, home = trial.random, trial.folder / "home"
    kind = random.choice(["stopped", "finished", "study"])
    folder = copy_run(trial.base / kind, trial.folder / "received" / kind)
    path = _choose_path(folder, random)
    way = random.choice(_WAYS)
    _fill_home(home, path, folder)
    name = path.relative_to(folder.parent)
    way(path, home)
    before, what = _read_home(home), f"{way.__name__.replace('_', ' ')} in place of {name}"
    codes = []
    for command in random.sample(sorted(_COMMANDS), 3):
        work = _COMMANDS[command](trial, folder)
        ending = run_to_end(work, trial.folder / command, _SECONDS)
        if fault := ending.find_fault():
            return what, Finding(fault.verdict, f"{command}: {fault.reason}")
        if changed := _find_change(before, _read_home(home)):
            return what, Finding("lost", f"{command} changes {changed}")
        codes.append(ending.code)
    return what, Finding("reported" if any(codes) else "accepted")


def link(path: Path, home: Path) -> None:
    """Put a symbolic link to the user's file or folder of this name."""
    path.symlink_to(home / path.name)


def link_to_a_folder(path: Path, home: Path) -> None:
    path.symlink_to(home / "folder")


def link_to_nothing(path: Path, home: Path) -> None:
    path.symlink_to(home / "folder" / "new")


def link_to_a_device(path: Path, _home: Path) -> None:
    path.symlink_to("/dev/zero")


def hard_link(path: Path, home: Path) -> None:
    source = home / path.name
    os.link(source if source.is_file() else home / "notes.txt", path)


def pipe(path: Path, _home: Path) -> None:
    os.mkfifo(path)


def plug(path: Path, _home: Path) -> None:
    """Put a socket."""
    current = Path.cwd()
    os.chdir(path.parent)  # the name of a socket has at most 107 characters
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(path.name)
    os.chdir(current)


def folder(path: Path, _home: Path) -> None:
    path.mkdir()


_WAYS: tuple[Callable[[Path, Path], None], ...] = (
    *(link, link, link_to_a_folder, link_to_nothing, link_to_a_device),
    *(hard_link, hard_link, pipe, plug, folder),
)


def _resume(_trial: Trial, folder: Path) -> Work:
    if folder.name == "study":
        return make_command([*_STUDY, "--out", folder])
    return make_command(Experiment("cadis", rounds=3).resume(folder))


def _report(_trial: Trial, folder: Path) -> Work:
    return make_command(["report", folder])


def _report_parent(_trial: Trial, folder: Path) -> Work:
    return make_command(["report", folder.parent])


def _start(_trial: Trial, folder: Path) -> Work:
    return make_command(_EXPERIMENT.start(folder))


def _watch(_trial: Trial, folder: Path) -> Work:
    def work() -> int:
        WatchedFolder(folder).get_data()
        return 0

    return lambda: run_with_exit_code(work)


def _predict(trial: Trial, folder: Path) -> Work:
    run = folder / "cadis" / "seed-0" if folder.name == "study" else folder
    options: list[str | Path] = ["--which", "best", "--overwrite", "--out"]
    table = run / "predictions.csv"
    return make_command(["predict", run, trial.base / "pictures", *options, table])


def _predict_received(trial: Trial, folder: Path) -> Work:
    """Predict with a good model, but read the received files as pictures."""
    out = trial.folder / "predictions.csv"
    return make_command(["predict", trial.base / "finished", folder, "--overwrite", "--out", out])


def _export(_trial: Trial, folder: Path) -> Work:
    return make_command(["export", folder, "--to", "state-dict", "--overwrite"])


_COMMANDS: dict[str, Callable[[Trial, Path], Work]] = {
    "resume": _resume,
    "report": _report,
    "report-parent": _report_parent,
    "start": _start,
    "watch": _watch,
    "predict": _predict,
    "predict-received": _predict_received,
    "export": _export,
}


def _choose_path(folder: Path, random: Random) -> Path:
    """Return a path that a command writes or reads."""
    existing = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return folder / random.choice([random.choice(_FUTURE), random.choice(existing)])


def _fill_home(home: Path, path: Path, folder: Path) -> None:
    """Write files of the user; one of them has the name and content of the replaced file."""
    (home / "folder" / "clients").mkdir(parents=True)
    names = ("round-1.json", "client-0-round-1.safetensors", "results.csv", "history.jsonl", "lock")
    for name in (*names, "accuracy.png", "seed-0", ".report.html.draft"):
        (home / "folder" / name).write_text("precious")
        (home / "folder" / "clients" / name).write_text("precious")
    (home / "notes.txt").write_text("17")
    if path.is_dir():
        shutil.copytree(path, home / path.name)
        shutil.rmtree(path)
    elif path.exists():
        path.rename(home / path.name)
    else:
        (home / path.name).write_text("precious")
    if path != folder:
        path.parent.mkdir(parents=True, exist_ok=True)


def _read_home(home: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and content of all files of the user."""
    return {
        path.relative_to(home).as_posix(): (
            path.lstat().st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(home.rglob("*"))
    }


def _find_change(
    before: dict[str, tuple[int, bytes]], after: dict[str, tuple[int, bytes]]
) -> str | None:
    """Return the name of a file that is new, gone or changed."""
    names = sorted(before.keys() | after.keys())
    return next((name for name in names if before.get(name) != after.get(name)), None)


ATTACK = Attack(
    name="links",
    title="links, pipes, sockets and folders in place of files; then eight commands",
    trials=500,
    quick=tuple(range(6)),
    prepare=prepare,
    attempt=attempt,
)
