"""``cadis predict`` and ``cadis export``."""

import csv
from pathlib import Path

import pytest

import cadis
from cadis.experiment import resolve, run_experiment
from cli_support import call, refuse, succeed
from support import draw_digits

QUICK = {"rounds": 1, "epochs": 2, "workers": 1, "clients": 4, "method": "fedavg"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    run_experiment(resolve({}, QUICK | {"partition": "iid"}), folder)
    return folder


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Thirty digits in folders that are named as their classes."""
    monkeypatch.chdir(tmp_path)
    draw_digits(tmp_path / "pictures", 30)
    return tmp_path / "pictures"


def test_predictions_of_a_folder(trained: Path, pictures: Path) -> None:
    result = succeed("predict", trained, "pictures")
    expected = cadis.load(trained).predict(pictures)
    with Path("predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["file"] for row in rows] == [each.name for each in expected]
    assert [row["predicted"] for row in rows] == [each.label for each in expected]
    assert list(rows[0])[3:] == [f"p_{number}" for number in range(10)]
    assert float(rows[3]["p_7"]) == pytest.approx(expected[3].probabilities[7], rel=1e-5)
    right = sum(each.label == each.truth for each in expected) / 30
    assert right > 0.3  # chance is 0.1
    assert f"{right:.3f}" in result
    assert "Predictions for 30 inputs are in predictions.csv." in result


def test_a_file_that_is_there_is_left_alone(trained: Path, pictures: Path) -> None:
    Path("mine.csv").write_text("thesis")
    assert "mine.csv is there already" in refuse("predict", trained, pictures, "--out", "mine.csv")
    assert Path("mine.csv").read_text() == "thesis"
    succeed("predict", trained, pictures, "--out", "mine.csv", "--overwrite")
    assert Path("mine.csv").read_text().startswith("file,predicted,")


def test_what_cannot_be_read_is_named_and_the_rest_is_done(trained: Path, pictures: Path) -> None:
    (pictures / "0" / "broken.png").write_bytes(b"")
    result = call("predict", trained, pictures, "--which", "best")
    assert result.exit_code == 1
    assert "Left out 0/broken.png: it is not a picture that can be read." in result.output
    assert "could not be read and were left out: 1." in result.output
    assert len(Path("predictions.csv").read_text().splitlines()) == 31
    refuse("predict", trained, pictures / "0" / "broken.png", "--out", "other.csv")
    assert not Path("other.csv").exists()


def test_mistakes_are_one_sentence(trained: Path, pictures: Path) -> None:
    for arguments, sentence in (
        ((trained, "none"), "There is no picture, folder or table none."),
        (("none", pictures), "There is no run in the folder none."),
        ((trained, pictures, "--name", "x"), "has no model 'x'; there is but one."),
    ):
        assert sentence in refuse("predict", *arguments)
    assert not Path("predictions.csv").exists()


def test_export_beside_the_model(trained: Path) -> None:
    result = succeed("export", trained, "--to", "torchscript")
    said = " ".join(result.split())
    assert "It makes 'probabilities' of 'pixels'" in said
    assert "Compared with the model on 20 inputs: the same classes" in said
    assert (trained / "model.torchscript").exists()
    assert "is there already" in refuse("export", trained, "--to", "torchscript")
    succeed("export", trained, "--to", "state-dict", "--which", "best")
    assert (trained / "best.pt").exists()
