"""Runs of before what methods tell were named arrays, and state was kept part by part.

``old`` holds runs of two rounds as they were written then, and the models after four.
"""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import cadis
from cadis.analysis import read_results
from cadis.report import draw_figures, summary_text
from cadis.store import RunFolder
from support import small_federation, small_model

OLD = Path(__file__).parent / "old"
each_method = pytest.mark.parametrize("method", ["cadis", "feddyn", "fedfa"])


def copied(method: str, place: Path) -> Path:
    shutil.copytree(OLD / method, place / method)
    return place / method


@each_method
def test_an_old_run_goes_on_as_it_would_have(method: str, tmp_path: Path) -> None:
    federation, out = small_federation(), copied(method, tmp_path)
    cadis.run(
        small_model(),
        federation.clients,
        federation.test,
        rounds=4,
        method="cadis-paper" if method == "cadis" else method,  # as it is called now
        per_round=3,
        epochs=2,
        batch_size=4,
        lr=0.1,
        seed=7,
        workers=1,
        device="cpu",
        stack=False,  # as it was begun
        test_clients=2,
        true_clusters=[0, 0, 0, 1, 2],
        out=out,
        resume=True,
    )
    expected = load_file(OLD / f"{method}-after-round-4.safetensors")
    found = load_file(out / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():  # another processor may round differently
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-5)
    history = RunFolder(out).read_history()
    assert [record.round for record in history] == [1, 2, 3, 4]
    assert [record.clock is None for record in history] == [True, True, False, False]
    assert history[2].clock == max(2 * (9 + 2 * int(c)) for c in history[2].participants)
    assert all(("clusters" in record.report) is (method == "cadis") for record in history)


@each_method
def test_an_old_run_is_reported(method: str, tmp_path: Path) -> None:
    folder = RunFolder(copied(method, tmp_path))
    drawn = {path.stem for path in draw_figures(read_results([folder.path]), tmp_path / "drawn")}
    assert {"accuracy", "confusion", "federation"} <= drawn
    assert ({"similarity", "clusters", "flow"} <= drawn) is (method == "cadis")
    assert "best accuracy" in summary_text(folder)


def test_another_method_is_still_another(tmp_path: Path) -> None:
    federation, out = small_federation(), copied("cadis", tmp_path)
    with pytest.raises(cadis.CadisError, match=r"has lr = 0\.1, not 0\.2"):
        cadis.run(
            small_model(),
            federation.clients,
            federation.test,
            rounds=4,
            method="cadis-paper",
            per_round=3,
            epochs=2,
            batch_size=4,
            lr=0.2,
            seed=7,
            out=out,
            resume=True,
        )
