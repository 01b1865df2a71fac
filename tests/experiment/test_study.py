import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cadis._io import NO_CALLBACKS, Callbacks
from cadis.errors import CadisError
from cadis.experiment import method_variants, run_study, study_folder
from cadis.server import OnRound, RoundResult
from cadis.store import PlannedRun, RunFolder, Study, StudyFolder, is_locked, planned_runs
from support import refused, same_models

QUICK = {"rounds": "3", "clients": "8", "per_round": "4", "epochs": "1", "workers": "1"}


@dataclass
class Heard:
    """Remembers all that it hears; may stop everything after some rounds."""

    stop_after: int = 10**9
    rounds: list[tuple[str, int, int]] = field(default_factory=list)
    reused: list[bool] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    of_run: Callbacks = NO_CALLBACKS

    def begin(self, run: PlannedRun) -> OnRound:
        def on_round(result: RoundResult) -> None:
            self.rounds.append((run.variant.name, run.seed, result.record.round))
            if len(self.rounds) == self.stop_after:
                raise KeyboardInterrupt

        return on_round

    def end(self, run: PlannedRun, reused: bool) -> None:
        assert run.finished()
        self.reused.append(reused)

    def fail(self, sentence: str) -> None:
        self.failed.append(sentence)


def quick_study(methods: str = "fedavg,cadis", seeds: int = 2, **changed: str) -> Study:
    variants = method_variants(methods.split(","), {}, QUICK | changed)
    return Study("compare", variants, tuple(range(seeds)), "cadis compare", "fedavg")


def test_runs_of_one_seed_are_paired(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    study = folder.join(quick_study("fedavg,fedprox,cadis-paper"))
    assert run_study(folder, study, Heard()) == []
    for seed in study.seeds:
        runs = [folder.run_folder(variant, seed) for variant in study.variants]
        assert len({(run.path / "federation.json").read_text() for run in runs}) == 1
        sampled = [[r.participants for r in run.read_history()] for run in runs]
        assert sampled[0] == sampled[1] == sampled[2]
    other = [folder.run_folder(study.variants[0], seed).path for seed in study.seeds]
    assert len({(path / "federation.json").read_text() for path in other}) == 2


def test_stopped_anywhere_it_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    study, whole = quick_study(), StudyFolder(tmp_path / "whole")
    run_study(whole, whole.join(study), Heard())
    folder = StudyFolder(tmp_path / "broken")
    folder.join(study)
    with pytest.raises(KeyboardInterrupt):
        run_study(folder, study, Heard(stop_after=5))
    heard = Heard()
    run_study(folder, folder.join(study), heard)
    assert len(heard.rounds) == 4 * 3 - 5  # none of them twice
    assert heard.reused == [True, False, False, False]
    for run in planned_runs(whole, study):
        assert same_models(run.folder.path, folder.run_folder(run.variant, run.seed).path)


def test_runs_that_exist_are_reused_by_a_larger_study(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    run_study(folder, folder.join(quick_study("fedavg", seeds=1)), Heard())
    heard = Heard()
    larger = folder.join(quick_study("fedavg,cadis", seeds=2))
    run_study(folder, larger, heard)
    assert heard.reused == [True, False, False, False]
    assert folder.read() == larger
    assert [variant.name for variant in larger.variants] == ["fedavg", "cadis"]


def test_more_rounds_prolong_what_is_there(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    run_study(folder, folder.join(quick_study("fedavg", seeds=1)), Heard())
    heard = Heard()
    run_study(folder, folder.join(quick_study("fedavg", seeds=1, rounds="5")), heard)
    assert [number for _, _, number in heard.rounds] == [4, 5]


@pytest.mark.parametrize(
    ("methods", "changed", "sentence"),
    [
        ("fedavg", {"lr": "0.5"}, "has lr = auto for fedavg, not 0.5"),
        ("fedprox", {"lr": "0.5"}, "has lr = auto for it, not 0.5"),
        ("cadis", {"threshold": "0.6"}, "has threshold = auto for cadis, not 0.6"),
    ],
)
def test_a_folder_with_other_options_is_refused(
    methods: str, changed: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    folder = StudyFolder(tmp_path / "study")
    folder.join(quick_study())
    told = refused(folder.join, quick_study(methods, 2, **changed))
    assert sentence in told
    assert "choose another folder by --out" in told


def test_without_being_told_the_same_study_goes_to_the_same_folder(tmp_path: Path) -> None:
    base, study = tmp_path / "compare-digits", quick_study()
    first = study_folder(base, study)
    assert first.path == base
    first.join(study)
    assert study_folder(base, quick_study("fedfa", seeds=7)).path == base
    other = quick_study(lr="0.5")
    assert study_folder(base, other).path == tmp_path / "compare-digits-2"


def test_a_run_that_diverges_does_not_stop_the_others(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    study = folder.join(quick_study("feddyn,fedavg", seeds=1, lr="1e30"))
    heard = Heard()
    sentences = run_study(folder, study, heard)
    assert sentences == heard.failed
    assert len(sentences) == 2
    assert sentences[0].startswith("FedDyn, seed 0: Round 1: ")


def test_damage_to_one_run_does_not_stop_the_others_and_the_rest_is_mended(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    study = folder.join(quick_study(seeds=1))
    run_study(folder, study, Heard())
    first, second = (run.folder.path for run in planned_runs(folder, study))
    (first / "history.jsonl").write_bytes((first / "history.jsonl").read_bytes()[5:])
    (second / "federation.json").write_text("{}")
    (sentence,) = run_study(folder, study, Heard())
    assert sentence.startswith("FedAvg, seed 0: ")
    assert "history.jsonl is damaged" in sentence
    assert sentence.endswith(f"If {first} is deleted, it is run anew.")
    assert len(RunFolder(second).read_json("federation.json")["clients"]) == 8


def test_fewer_rounds_than_there_are_change_nothing(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    before = folder.join(quick_study())
    with pytest.raises(CadisError, match="has 3 rounds, more than 2; choose another folder"):
        folder.join(quick_study(seeds=3, rounds="2"))
    assert folder.read() == before


def test_a_folder_with_a_users_study_is_refused_and_left_alone(tmp_path: Path) -> None:
    mine = {"study.json": '{"of": "mine"}', "lock": "7"}
    for name, text in mine.items():
        (tmp_path / name).write_text(text)
    with (
        pytest.raises(CadisError, match=r"study.json is damaged"),
        StudyFolder(tmp_path).opened(quick_study()),
    ):
        pass
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == mine


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("not ours")
    with pytest.raises(CadisError, match="is not empty"):
        StudyFolder(tmp_path).join(quick_study())


HOLD = """
import sys
from pathlib import Path
from cadis.store import lock
held = lock(Path(sys.argv[1]), "It")
print("held", flush=True)
sys.stdin.read()
"""


def test_two_processes_do_not_work_on_one_study(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    study = folder.join(quick_study())
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
        sentence = f"still going on, in process {other.pid}"
        with (
            pytest.raises(CadisError, match=sentence),
            folder.opened(quick_study("fedavg,cadis,fedfa")),
        ):
            pass
        other.communicate("")
    assert folder.read() == study  # the one who was refused has changed nothing
    with folder.opened(study):
        assert is_locked(folder.lock_file)
        with pytest.raises(CadisError, match="still going on"), folder.opened(study):
            pass
        assert is_locked(folder.lock_file)
    assert not is_locked(folder.lock_file)
