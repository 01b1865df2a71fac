"""Many runs that belong together: a comparison of methods, or a sweep over parameters."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from cadis._io import Callbacks
from cadis.errors import CadisError
from cadis.options import MAY_CHANGE
from cadis.server import STRICT, OnRound, RoundRecord
from cadis.store.folder import RunFolder, cannot_be_written
from cadis.store.lock import lock
from cadis.store.storage import DamagedError, read_as, read_file, replace_text


@dataclass(frozen=True)
class Variant:
    """One of the things that are compared.

    Attributes:
        name: as users type it, and as its folder is called.
        label: as tables and figures call it.
        options: all its options but the seed, as a file of options has them.
        cell: in a sweep or a grid, the values of the parameters that are varied.
    """

    __pydantic_config__: ClassVar = STRICT
    name: str
    label: str
    options: dict[str, Any]
    cell: tuple[str, ...] = ()


@dataclass(frozen=True)
class PaperReport:
    """What a table or figure of a paper reports of the same experiment.

    The accuracy is the best top-1 accuracy in percent, by the name of the method; ``changed``
    says what is different here.
    """

    __pydantic_config__: ClassVar = STRICT
    place: str
    accuracy: dict[str, float]
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """What is compared.

    Attributes:
        kind: a comparison of methods or a sweep over parameters.
        variants: what is compared with each other.
        seeds: a run of each variant for each of them.
        command: what the user typed.
        baseline: name of the variant that the others are compared with, if any.
        targets: accuracies whose first round is asked for; empty for some that fit.
        parameters: in a sweep or a grid, the names of the parameters that are varied.
        paper: what the paper reports of the same, if it does.
    """

    __pydantic_config__: ClassVar = STRICT
    kind: Literal["compare", "sweep"]
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    command: str
    baseline: str | None = None
    targets: tuple[float, ...] = ()
    parameters: tuple[str, ...] = ()
    paper: PaperReport | None = None

    def contestant(self, variant: Variant) -> str:
        """The name of what is compared, without that of its cell of a grid."""
        if self.kind != "compare" or not variant.cell:
            return variant.name
        return variant.name.removeprefix(f"{cell_name(self.parameters, variant.cell)}_")

    def difference(self, other: "Study") -> str | None:
        """How another study's runs differ from these, in a sentence; None if they fit together."""
        if (self.kind, self.parameters) != (other.kind, other.parameters):
            return "compares something else"
        mine = {variant.name: variant.options for variant in self.variants}
        for variant in other.variants:
            options, name = mine.get(variant.name), variant.name
            if options is None:  # a new one must at least share what all have in common
                options, name = _shared(self.variants), "it"
            if options.get("rounds", 0) > variant.options.get("rounds", 0):
                return f"has {options['rounds']} rounds, more than {variant.options['rounds']}"
            for key in sorted(options.keys() & variant.options.keys() - set(MAY_CHANGE)):
                if options[key] != variant.options[key]:
                    was, now = _differing(key, options[key], variant.options[key])
                    return f"has {was} for {name}, not {now}"
        return None

    def joined(self, other: "Study") -> "Study":
        """Both: what this one has, and what another one has besides or anew."""
        anew = {variant.name: variant for variant in other.variants}
        kept = [anew.pop(variant.name, variant) for variant in self.variants]
        seeds = tuple(sorted({*self.seeds, *other.seeds}))
        return replace(other, variants=(*kept, *anew.values()), seeds=seeds)


@dataclass(frozen=True)
class StudyFolder:
    """A folder with a ``study.json`` and a folder of runs for each variant."""

    path: Path

    @property
    def lock_file(self) -> Path:
        """Held by whoever works on the study."""
        return self.path / "lock"

    def holds_study(self) -> bool:
        """Whether a study was begun here."""
        return (self.path / "study.json").exists()

    def run_folder(self, variant: Variant, seed: int) -> RunFolder:
        """The folder of one run."""
        return RunFolder(self.path / variant.name / f"seed-{seed}")

    def write(self, study: Study) -> None:
        """Keep what is compared."""
        self.path.mkdir(parents=True, exist_ok=True)
        replace_text(self.path / "study.json", json.dumps(asdict(study), indent=1) + "\n")

    def read(self) -> Study:
        """What is compared."""
        path = self.path / "study.json"
        return read_as(Study, read_file(path), path)

    @contextmanager
    def opened(self, study: Study) -> Iterator[Study]:
        """As :meth:`join`, while nobody else can work on the study."""
        self._check_free()
        with cannot_be_written(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            held = lock(self.lock_file, f"The study in {self.path}")
        with closing(held):
            yield self.join(study)

    def join(self, study: Study) -> Study:
        """Begin a study here, or go on with the one that is here; returns all that there is."""
        self._check_free()
        if self.holds_study():
            before = self.read()
            if sentence := before.difference(study):
                raise CadisError(
                    f"The study in {self.path} {sentence}; choose another folder by --out."
                )
            study = before.joined(study)
        with cannot_be_written(self.path):
            self.write(study)
        return study

    def _check_free(self) -> None:
        """Refuse a folder that holds something else than a study."""
        if self.holds_study():
            self.read()  # a file of that name may be somebody else's
            return
        with cannot_be_written(self.path):
            there = {path.name for path in self.path.iterdir()} if self.path.exists() else set()
        if there - {"lock", ".study.json.draft"}:
            raise CadisError(f"The folder {self.path} is not empty; choose another by --out.")


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study."""

    variant: Variant
    seed: int
    folder: RunFolder

    @property
    def rounds(self) -> int:
        """How many rounds it is to have."""
        rounds: int = self.variant.options["rounds"]
        return rounds

    def done(self) -> list[RoundRecord]:
        """The rounds that are there already."""
        try:
            return self.folder.read_history() if self.folder.holds_run() else []
        except DamagedError:  # it is told when the run is to go on
            return []

    def finished(self) -> bool:
        """Whether all of them are there, and nothing is left to be written again."""
        if not (self.folder.path / "summary.json").exists() or len(self.done()) != self.rounds:
            return False
        try:
            self.folder.read_json("federation.json")
            self.folder.read_json("summary.json")
        except DamagedError:
            return False
        return True


class StudyCallbacks(Protocol):
    """What is called as a study goes on, and, ``of_run``, as each of its runs does."""

    of_run: Callbacks

    def begin(self, run: PlannedRun) -> OnRound:
        """A run begins or goes on; returns who hears of its rounds."""

    def end(self, run: PlannedRun, reused: bool) -> None:
        """A run has ended, or was there already."""

    def fail(self, sentence: str) -> None:
        """A run could not go on."""


def planned_runs(folder: StudyFolder, study: Study) -> Iterator[PlannedRun]:
    """All runs, seed by seed: what is there at any time can be compared."""
    for seed in study.seeds:
        for variant in study.variants:
            yield PlannedRun(variant, seed, folder.run_folder(variant, seed))


def cell_name(names: Sequence[str], values: Sequence[str]) -> str:
    """What the values of some options are called in the name of a folder."""
    text = "_".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
    return "".join(letter if letter.isalnum() or letter in "_=.-" else "-" for letter in text)


def cell_label(names: Sequence[str], values: Sequence[str]) -> str:
    """The values of some options in words."""
    return ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))


def _shared(variants: tuple[Variant, ...]) -> dict[str, Any]:
    """Options that all variants have in common; the method, what it goes with and tables aside."""
    first = variants[0].options
    return {
        key: value
        for key, value in first.items()
        if not isinstance(value, Mapping)
        and all(variant.options.get(key) == value for variant in variants)
        and key not in ("method", "sampler", "server_optimizer")
    }


def _differing(key: str, was: Any, now: Any) -> tuple[str, str]:
    """What differs, in words; of tables, only the first value that does."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for name in sorted(was.keys() | now.keys()):
            if was.get(name) != now.get(name):
                return f"{name} = {was.get(name)}", f"{now.get(name)}"
    return f"{key} = {was}", f"{now}"
