"""Studies: many runs, reused and resumed."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cadis._io import NO_CALLBACKS, Callbacks
from cadis.errors import CadisError
from cadis.experiment import find_study_folder, make_method_variants, run_study
from cadis.server import OnRound, RoundResult
from cadis.store import PlannedRun, RunFolder, Study, StudyFolder, is_locked, list_planned_runs
from support import get_refusal, have_identical_models

QUICK = {"rounds": "3", "clients": "8", "per_round": "4", "epochs": "1", "workers": "1"}


@dataclass
class Recorder:
    """Callbacks that record all calls; may stop the study after some rounds."""

    stop_after: int = 10**9
    rounds: list[tuple[str, int, int]] = field(default_factory=list)
    reused: list[bool] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    run_callbacks: Callbacks = NO_CALLBACKS

    def begin(self, run: PlannedRun) -> OnRound:
        def on_round(result: RoundResult) -> None:
            self.rounds.append((run.variant.name, run.seed, result.record.round))
            if len(self.rounds) == self.stop_after:
                raise KeyboardInterrupt

        return on_round

    def end(self, run: PlannedRun, reused: bool) -> None:
        assert run.is_finished()
        self.reused.append(reused)

    def fail(self, sentence: str) -> None:
        self.failed.append(sentence)


def quick_study(methods: str = "fedavg,cadis", seeds: int = 2, **changes: str) -> Study:
    variants = make_method_variants(methods.split(","), {}, QUICK | changes)
    return Study("compare", variants, tuple(range(seeds)), "cadis compare", "fedavg")


def test_runs_of_one_seed_have_the_same_partition_and_participants(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    study = folder.add(quick_study("fedavg,fedprox,cadis-paper"))
    assert run_study(folder, study, Recorder()) == []
    for seed in study.seeds:
        runs = [folder.get_run_folder(variant, seed) for variant in study.variants]
        assert len({(run.path / "federation.json").read_text() for run in runs}) == 1
        sampled = [[r.participants for r in run.read_history()] for run in runs]
        assert sampled[0] == sampled[1] == sampled[2]
    other = [folder.get_run_folder(study.variants[0], seed).path for seed in study.seeds]
    assert len({(path / "federation.json").read_text() for path in other}) == 2


def test_interrupted_study_continues_and_gives_the_same_models(tmp_path: Path) -> None:
    study, whole = quick_study(), StudyFolder(tmp_path / "whole")
    run_study(whole, whole.add(study), Recorder())
    folder = StudyFolder(tmp_path / "broken")
    folder.add(study)
    with pytest.raises(KeyboardInterrupt):
        run_study(folder, study, Recorder(stop_after=5))
    recorder = Recorder()
    run_study(folder, folder.add(study), recorder)
    assert len(recorder.rounds) == 4 * 3 - 5  # no round is repeated
    assert recorder.reused == [True, False, False, False]
    for run in list_planned_runs(whole, study):
        resumed = folder.get_run_folder(run.variant, run.seed)
        assert have_identical_models(run.folder.path, resumed.path)


def test_existing_runs_are_reused_by_a_larger_study(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    run_study(folder, folder.add(quick_study("fedavg", seeds=1)), Recorder())
    recorder = Recorder()
    larger = folder.add(quick_study("fedavg,cadis", seeds=2))
    run_study(folder, larger, recorder)
    assert recorder.reused == [True, False, False, False]
    assert folder.read() == larger
    assert [variant.name for variant in larger.variants] == ["fedavg", "cadis"]


def test_more_rounds_extend_existing_runs(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    run_study(folder, folder.add(quick_study("fedavg", seeds=1)), Recorder())
    recorder = Recorder()
    run_study(folder, folder.add(quick_study("fedavg", seeds=1, rounds="5")), recorder)
    assert [number for _, _, number in recorder.rounds] == [4, 5]


@pytest.mark.parametrize(
    ("methods", "changes", "sentence"),
    [
        ("fedavg", {"lr": "0.5"}, "has lr = auto for fedavg, not 0.5"),
        ("fedprox", {"lr": "0.5"}, "has lr = auto for all variants, not 0.5"),
        ("cadis", {"threshold": "0.6"}, "has threshold = auto for cadis, not 0.6"),
    ],
)
def test_folder_with_other_options_is_refused(
    methods: str, changes: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    folder = StudyFolder(tmp_path / "study")
    folder.add(quick_study())
    message = get_refusal(folder.add, quick_study(methods, 2, **changes))
    assert sentence in message
    assert "choose another folder with --out" in message


def test_default_folder_of_the_same_study_is_the_same(tmp_path: Path) -> None:
    base, study = tmp_path / "compare-digits", quick_study()
    first = find_study_folder(base, study)
    assert first.path == base
    first.add(study)
    assert find_study_folder(base, quick_study("fedfa", seeds=7)).path == base
    other = quick_study(lr="0.5")
    assert find_study_folder(base, other).path == tmp_path / "compare-digits-2"


def test_diverging_run_does_not_stop_the_others(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    study = folder.add(quick_study("feddyn,fedavg", seeds=1, lr="1e30"))
    recorder = Recorder()
    sentences = run_study(folder, study, recorder)
    assert sentences == recorder.failed
    assert len(sentences) == 2
    assert sentences[0].startswith("FedDyn, seed 0: Round 1: ")


def test_damaged_run_does_not_stop_the_others(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    study = folder.add(quick_study(seeds=1))
    run_study(folder, study, Recorder())
    first, second = (run.folder.path for run in list_planned_runs(folder, study))
    (first / "history.jsonl").write_bytes((first / "history.jsonl").read_bytes()[5:])
    (second / "federation.json").write_text("{}")
    (sentence,) = run_study(folder, study, Recorder())
    assert sentence.startswith("FedAvg, seed 0: ")
    assert "history.jsonl is damaged" in sentence
    assert sentence.endswith(f"Delete {first} to run it again.")
    assert len(RunFolder(second).read_json("federation.json")["clients"]) == 8


def test_fewer_rounds_than_finished_are_refused(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    before = folder.add(quick_study())
    with pytest.raises(CadisError, match="has 3 rounds, more than the 2 that you ask for"):
        folder.add(quick_study(seeds=3, rounds="2"))
    assert folder.read() == before


def test_folder_with_a_foreign_study_file_is_refused(tmp_path: Path) -> None:
    files = {"study.json": '{"of": "mine"}', "lock": "7"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with (
        pytest.raises(CadisError, match=r"study.json is damaged"),
        StudyFolder(tmp_path).open(quick_study()),
    ):
        pass
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


def test_study_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("not ours")
    with pytest.raises(CadisError, match="is not empty"):
        StudyFolder(tmp_path).add(quick_study())


HOLD = """
import sys
from pathlib import Path
from cadis.store import lock
held = lock(Path(sys.argv[1]), "It")
print("held", flush=True)
sys.stdin.read()
"""


def test_second_process_on_one_study_is_refused(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    study = folder.add(quick_study())
    assert not is_locked(folder.lock_file)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder.lock_file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert is_locked(folder.lock_file)
        sentence = f"is in use by process {other.pid}"
        with (
            pytest.raises(CadisError, match=sentence),
            folder.open(quick_study("fedavg,cadis,fedfa")),
        ):
            pass
        other.communicate("")
    assert folder.read() == study  # the refused process has changed nothing
    with folder.open(study):
        assert is_locked(folder.lock_file)
        with pytest.raises(CadisError, match="is in use by"), folder.open(study):
            pass
        assert is_locked(folder.lock_file)
    assert not is_locked(folder.lock_file)
