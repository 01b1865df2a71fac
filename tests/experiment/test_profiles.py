"""With --no-profiles, the files of a finished run say nothing about the classes of clients."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cadis.analysis import Comparison, read_results
from cadis.errors import CadisError
from cadis.experiment import resolve, run_experiment
from cadis.report.figures.clusters import draw_similarity
from cadis.report.notes import write_notes
from cadis.report.page.assembly import write_report
from cadis.server import RoundResult
from cadis.store import PlannedRun, RunFolder, Variant, get_clusters
from cli_support import refuse

OPTIONS = {"clients": 6, "per_round": 4, "epochs": 1, "workers": 1, "method": "cadis"}


class StoppedError(Exception):
    """Raised by a callback to interrupt a run."""


def run(out: Path, rounds: int = 2, resume: bool = False, **options: object) -> RunFolder:
    run_experiment(resolve({}, OPTIONS | {"rounds": rounds, **options}), out, resume)
    return RunFolder(out)


def stop_after(out: Path, rounds: int, profiles: bool) -> None:
    def on_round(result: RoundResult) -> None:
        if result.record.round == rounds:
            raise StoppedError

    options = {"rounds": rounds + 1, "profiles": profiles}
    with pytest.raises(StoppedError):
        run_experiment(resolve({}, OPTIONS | options), out, on_round=on_round)


def list_state_files(folder: RunFolder) -> list[str]:
    paths = folder.checkpoint.client_folder.parent.rglob("*.safetensors")
    return sorted(path.name for path in paths)


def test_only_labels_of_clusters_are_kept_and_results_are_the_same(tmp_path: Path) -> None:
    kept, left_out = run(tmp_path / "kept"), run(tmp_path / "left-out", profiles=False)
    for record, other in zip(kept.read_history(), left_out.read_history(), strict=True):
        assert record.has_profiles()
        assert not other.has_profiles()
        assert get_clusters(record) == get_clusters(other)
        assert record.without_profiles().report == other.report
        assert replace(record, report={}, seconds=other.seconds) == replace(other, report={})
    models = (load_file(folder.path / "model.safetensors") for folder in (kept, left_out))
    assert all(map(torch.equal, *(model.values() for model in models)))
    for path in left_out.path.rglob("*"):
        if path.is_file():
            assert not re.search(rb'"(profile|similarity|centres)":', path.read_bytes()), path
    assert list_state_files(kept) == ["round-1.safetensors", "round-2.safetensors"]
    assert list_state_files(left_out) == []


def test_stopped_run_resumes_exactly_and_then_loses_its_state(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", rounds=3, profiles=False)
    stop_after(tmp_path / "run", 2, profiles=False)
    assert list_state_files(RunFolder(tmp_path / "run"))
    resumed = run(tmp_path / "run", rounds=3, resume=True, profiles=False)
    names = ("model.safetensors", "best.safetensors")
    for name in names:
        first, second = (load_file(folder.path / name) for folder in (whole, resumed))
        assert all(torch.equal(first[key], second[key]) for key in first)
    assert list_state_files(resumed) == []


def test_finished_run_cannot_be_prolonged(tmp_path: Path) -> None:
    run(tmp_path / "run", profiles=False)
    for options in ((), ("--rounds", 3), ("--rounds", 3, "--profiles")):
        assert refuse("run", "--resume", "--out", tmp_path / "run", *options) == (
            f"cadis: The run in {tmp_path / 'run'} is finished, and with --no-profiles its state "
            "was not kept, so it cannot be resumed; start a new run.\n"
        )


def test_profiles_that_were_kept_cannot_be_left_out_later(tmp_path: Path) -> None:
    stop_after(tmp_path / "run", 2, profiles=True)
    with pytest.raises(CadisError, match="has kept class profiles of earlier rounds; resume it w"):
        run(tmp_path / "run", rounds=3, resume=True, profiles=False)
    assert run(tmp_path / "run", rounds=3, resume=True).has_summary()


def test_study_repeats_the_end_of_a_run_that_still_has_its_state(tmp_path: Path) -> None:
    folder = run(tmp_path / "run")
    for profiles, is_finished in ((True, True), (False, False)):
        variant = Variant("cadis", "CADIS", {"rounds": 2, "profiles": profiles})
        assert PlannedRun(variant, 0, folder).is_finished() is is_finished


def test_report_says_that_profiles_were_not_kept(tmp_path: Path) -> None:
    results = read_results([run(tmp_path / "run", profiles=False).path])
    sentence = "With --no-profiles, class profiles and similarities of clients were not kept"
    assert any(note.startswith(sentence) for note in write_notes(Comparison(results)))
    assert sentence in write_report(results, tmp_path / "page" / "report.html").read_text()
    assert draw_similarity(results) is None
