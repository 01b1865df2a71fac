"""``cadis run``: one experiment, from options to pictures."""

import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from cadis.core import CadisError
from cadis.engine import EngineError
from cadis.experiment import ExperimentConfig, RunFolder, read_toml, resolve, run_experiment
from cadis.report import draw_figures, progress, summary_table


def run(experiment: Path | None, out: Path | None, resume: bool, given: Mapping[str, str]) -> int:
    """Run, and return the exit code; whatever went wrong is one sentence."""
    folder = None
    try:
        config = _config(experiment, out, resume, given)
        folder = RunFolder(out or _free_folder(f"{config.method.name}-{config.settings.dataset}"))
        _run(config, folder, resume)
    except CadisError as error:
        return _say(str(error), 2)
    except EngineError as error:
        return _say(str(error), 1)
    except KeyboardInterrupt:
        begun = folder is not None and folder.holds_run()
        hint = f" Go on with: cadis run --resume --out {folder.path}" if folder and begun else ""
        return _say(f"Stopped.{hint}", 130)
    return 0


def _config(
    experiment: Path | None, out: Path | None, resume: bool, given: Mapping[str, str]
) -> ExperimentConfig:
    if not resume:
        return resolve({} if experiment is None else read_toml(experiment), given)
    if out is None or experiment is not None:
        raise CadisError("--resume wants the folder of the run by --out, and no file.")
    return resolve(RunFolder(out).read_config(), given)


def _run(config: ExperimentConfig, folder: RunFolder, resume: bool) -> None:
    console = Console()
    with progress(console, config.settings.rounds) as on_round:
        result = run_experiment(config, folder.path, resume, on_round)
    draw_figures(folder)
    console.print(summary_table(result.summary))
    console.print(f"Everything is in {folder.path}, pictures in {folder.figures}.", soft_wrap=True)


def _free_folder(name: str) -> Path:
    """A new folder under ``runs``: the name, with a number if it is taken."""
    path, number = Path("runs") / name, 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{name}-{number}"
    return path


def _say(sentence: str, code: int) -> int:
    print(f"cadis: {sentence}", file=sys.stderr)
    return code
