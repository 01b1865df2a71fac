"""Studies: sets of runs that compare methods or values of parameters.

:mod:`cadis.experiment` plans and runs them; analyses and the command line read them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePath
from typing import Any, ClassVar, Literal, Protocol

from cadis._io import Callbacks, check_output, has_name, replace_text
from cadis.errors import CadisError
from cadis.options import CHANGEABLE_OPTIONS
from cadis.server import STRICT, OnRound, RoundRecord
from cadis.store.folder import RunFolder
from cadis.store.lock import lock
from cadis.store.storage import (
    DamagedError,
    catch_write_errors,
    make_folder,
    parse_json,
    read_file,
)


@dataclass(frozen=True)
class Variant:
    """One method or setting of a study.

    Attributes:
        name: name that users type, and name of its folder.
        label: name in tables and figures.
        options: all its options except the seed, in the format of ``config.toml``.
        cell: values of the varied parameters, if the study has any, see :class:`Study`.
    """

    __pydantic_config__: ClassVar = STRICT
    name: str
    label: str
    options: dict[str, Any]
    cell: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if PurePath(self.name).name != self.name or self.name in ("", ".", ".."):
            raise ValueError("has a name that cannot be the name of a folder")
        if not isinstance(self.options.get("rounds", 0), int):
            raise ValueError("has rounds that are not a number")


@dataclass(frozen=True)
class PaperResults:
    """Results that a paper reports for the same experiment.

    Attributes:
        place: where the paper reports them, such as "Table I".
        accuracy: best top-1 accuracy of each method, in percent.
        changed: differences between the paper's experiment and ours.
    """

    __pydantic_config__: ClassVar = STRICT
    place: str
    accuracy: dict[str, float]
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """Plan of a study: one run per variant and seed.

    A study may vary parameters, such as ``lr``. Each combination of their values is called a cell.
    A sweep runs one method in each cell. A comparison runs several methods; if it varies
    parameters, it runs all methods in each cell and is called a grid.

    Attributes:
        kind: "compare" for a comparison of methods, "sweep" for a sweep over parameters.
        variants: methods or settings that are compared; in a grid, one for each method and cell.
        seeds: seeds of the runs of each variant.
        command: command that the user typed.
        baseline: name of the variant that the others are compared with, if any.
        targets: accuracies; tables show the first round that reaches each of them. If empty, they
            are chosen from the results.
        parameters: names of the varied parameters, if there are any.
        paper: results of a paper for the same experiment, if any.
    """

    __pydantic_config__: ClassVar = STRICT
    kind: Literal["compare", "sweep"]
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    command: str
    baseline: str | None = None
    targets: tuple[float, ...] = ()
    parameters: tuple[str, ...] = ()
    paper: PaperResults | None = None

    def get_name_without_cell(self, variant: Variant) -> str:
        """Return the name of a variant; in a grid without its cell: "cadis" for "lr=0.1_cadis"."""
        if self.kind != "compare" or not variant.cell:
            return variant.name
        return variant.name.removeprefix(f"{format_cell_name(self.parameters, variant.cell)}_")

    def describe_conflict(self, other: "Study") -> str | None:
        """Return why another study cannot be merged with this one; None if it can.

        The text is the end of a sentence that begins with "The study in FOLDER".
        """
        if self.kind != other.kind:
            return f"was made by cadis {self.kind}, not by cadis {other.kind}"
        if self.parameters != other.parameters:
            old, new = (", ".join(s.parameters) or "no parameters" for s in (self, other))
            return f"varies {old}, not {new}"
        options_by_name = {variant.name: variant.options for variant in self.variants}
        for variant in other.variants:
            options, name = options_by_name.get(variant.name), variant.name
            if options is None:  # a new variant must have the common options of the others
                options, name = _find_common_options(self.variants), "all variants"
            if options.get("rounds", 0) > variant.options.get("rounds", 0):
                rounds = variant.options["rounds"]
                return f"has {options['rounds']} rounds, more than the {rounds} that you ask for"
            for key in sorted(options.keys() & variant.options.keys() - set(CHANGEABLE_OPTIONS)):
                if options[key] != variant.options[key]:
                    old, new = _format_difference(key, options[key], variant.options[key])
                    return f"has {old} for {name}, not {new}"
        return None

    def merge(self, other: "Study") -> "Study":
        """Return a study with the variants and seeds of both; ``other`` has precedence."""
        new = {variant.name: variant for variant in other.variants}
        merged = [new.pop(variant.name, variant) for variant in self.variants]
        seeds = tuple(sorted({*self.seeds, *other.seeds}))
        return replace(other, variants=(*merged, *new.values()), seeds=seeds)


@dataclass(frozen=True)
class StudyFolder:
    """A folder with a ``study.json`` and one folder of runs per variant."""

    path: Path

    @property
    def lock_file(self) -> Path:
        """Path of the lock of the process that runs the study."""
        return self.path / "lock"

    def has_study(self) -> bool:
        """Return whether the folder has a study."""
        return has_name(self.path / "study.json")

    def get_run_folder(self, variant: Variant, seed: int) -> RunFolder:
        """Return the folder of one run."""
        folder = self.path / variant.name / f"seed-{seed}"
        check_output(folder, folder.parent)
        return RunFolder(folder)

    def write(self, study: Study) -> None:
        """Write ``study.json``."""
        make_folder(self.path, self.path)
        text = json.dumps(asdict(study), indent=1) + "\n"
        replace_text(self.path / "study.json", text, self.path)

    def read(self) -> Study:
        """Read ``study.json``."""
        path = self.path / "study.json"
        return parse_json(Study, read_file(path), path)

    @contextmanager
    def open(self, study: Study) -> Iterator[Study]:
        """Lock the folder until the end of the context; yield the result of :meth:`add`."""
        self._check_usable()
        with catch_write_errors(self.path):
            make_folder(self.path, self.path)
            study_lock = lock(self.lock_file, f"The study in {self.path}")
        with closing(study_lock):
            yield self.add(study)

    def add(self, study: Study) -> Study:
        """Write a study, merged with the study in the folder if there is one; return the result."""
        self._check_usable()
        if self.has_study():
            old = self.read()
            if conflict := old.describe_conflict(study):
                raise CadisError(
                    f"The study in {self.path} {conflict}; choose another folder with --out."
                )
            study = old.merge(study)
        with catch_write_errors(self.path):
            self.write(study)
        return study

    def _check_usable(self) -> None:
        """Raise an error if the folder has files that do not belong to a study."""
        check_output(self.path)
        if self.has_study():
            self.read()  # study.json may be a file of another program
            return
        with catch_write_errors(self.path):
            names = {path.name for path in self.path.iterdir()} if self.path.exists() else set()
        if names - {"lock", ".study.json.draft"}:
            raise CadisError(
                f"The folder {self.path} is not empty; choose another folder with --out."
            )


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study."""

    variant: Variant
    seed: int
    folder: RunFolder

    @property
    def rounds(self) -> int:
        """Number of rounds that the run has when it is finished."""
        rounds: int = self.variant.options.get("rounds", 0)
        return rounds

    def read_history(self) -> list[RoundRecord]:
        """Return the records of all finished rounds; empty if the history is damaged."""
        try:
            return self.folder.read_history() if self.folder.has_run() else []
        except DamagedError:  # the error is reported when the run is resumed
            return []

    def is_finished(self) -> bool:
        """Return whether all rounds are finished and all files can be read."""
        if (
            not has_name(self.folder.path / "summary.json")
            or len(self.read_history()) != self.rounds
        ):
            return False
        if not self.variant.options.get("profiles", True) and self.folder.has_state():
            return False  # the run was killed before it deleted the state
        try:
            self.folder.read_json("federation.json")
            self.folder.read_json("summary.json")
        except DamagedError:
            return False
        return True


class StudyCallbacks(Protocol):
    """Callbacks of a study; ``run_callbacks`` are the callbacks of each of its runs."""

    run_callbacks: Callbacks

    def begin(self, run: PlannedRun) -> OnRound:
        """Handle the start of a run; return the function to call after each round."""

    def end(self, run: PlannedRun, reused: bool) -> None:
        """Handle the end of a run.

        ``reused`` is True if the run was already finished when the study was started or resumed.
        """

    def fail(self, sentence: str) -> None:
        """Handle the error of a run, described in a sentence."""


def list_planned_runs(folder: StudyFolder, study: Study) -> Iterator[PlannedRun]:
    """Yield all runs, seed by seed, so that the runs finished so far can be compared."""
    for seed in study.seeds:
        for variant in study.variants:
            yield PlannedRun(variant, seed, folder.get_run_folder(variant, seed))


def check_user_output(path: Path) -> None:
    """Raise an error if a file or folder that a user names cannot be written without a link.

    Links above it are the user's own, unless they are in the folder of a run or a study.
    """
    folders = (f for f in path.parents if RunFolder(f).has_marker() or StudyFolder(f).has_study())
    *_, root = (path, *folders)  # the outermost
    check_output(path, root)


def format_cell_name(names: Sequence[str], values: Sequence[str]) -> str:
    """Return the name of a grid cell for folders, such as "lr=0.1_clients=50"."""
    text = "_".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
    return "".join(letter if letter.isalnum() or letter in "_=.-" else "-" for letter in text)


def format_cell_label(names: Sequence[str], values: Sequence[str]) -> str:
    """Return the label of a grid cell for tables, such as "lr=0.1, clients=50"."""
    return ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))


def _find_common_options(variants: tuple[Variant, ...]) -> dict[str, Any]:
    """Return the options that have the same value in all variants.

    The method, the sampler, the server optimizer and all tables of parameters are left out.
    """
    first = variants[0].options
    return {
        key: value
        for key, value in first.items()
        if not isinstance(value, Mapping)
        and all(variant.options.get(key) == value for variant in variants)
        and key not in ("method", "sampler", "server_optimizer")
    }


def _format_difference(key: str, old: Any, new: Any) -> tuple[str, str]:
    """Format the old and the new value of an option.

    If they are mappings of parameters, format only the first parameter that differs.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                return f"{name} = {old.get(name)}", f"{new.get(name)}"
    return f"{key} = {old}", f"{new}"
