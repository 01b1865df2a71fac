"""``cadis predict`` and ``cadis export``."""

import csv
import os
import re
from pathlib import Path

import pytest

import cadis
from cadis.experiment import resolve, run_experiment
from cli_support import call, refuse, succeed
from support import draw_digits

QUICK = {"rounds": 1, "epochs": 2, "workers": 1, "clients": 4, "method": "fedavg"}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run_folder") / "run"
    run_experiment(resolve({}, QUICK | {"partition": "iid"}), folder)
    return folder


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Thirty digits in folders that are named by class."""
    monkeypatch.chdir(tmp_path)
    draw_digits(tmp_path / "images", 30)
    return tmp_path / "images"


def test_predict_writes_one_row_per_image(run_folder: Path, images: Path) -> None:
    result = succeed("predict", run_folder, "images")
    expected = cadis.load(run_folder).predict(images)
    with Path("predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["file"] for row in rows] == [item.name for item in expected]
    assert [row["predicted"] for row in rows] == [item.label for item in expected]
    assert list(rows[0])[3:] == [f"p_{number}" for number in range(10)]
    assert float(rows[3]["p_7"]) == pytest.approx(expected[3].probabilities[7], rel=1e-5)
    accuracy = sum(item.label == item.truth for item in expected) / 30
    assert accuracy > 0.3  # a random guess has 0.1
    assert f"{accuracy:.3f}" in result
    assert "Predictions for 30 inputs: predictions.csv" in result


def test_predict_does_not_replace_a_file_without_overwrite(run_folder: Path, images: Path) -> None:
    Path("mine.csv").write_text("thesis")
    assert "mine.csv already exists" in refuse("predict", run_folder, images, "--out", "mine.csv")
    assert Path("mine.csv").read_text() == "thesis"
    succeed("predict", run_folder, images, "--out", "mine.csv", "--overwrite")
    assert Path("mine.csv").read_text().startswith("file,predicted,")


@pytest.mark.parametrize(
    ("out", "reason"),
    [("file/p.csv", "Not a directory|File exists"), (f"new/{300 * 'p'}.csv", "File name too long")],
)
@pytest.mark.parametrize("command", ["predict", "export"])
def test_output_that_cannot_be_written_is_refused_before_the_work(
    command: str, out: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    inputs = ["none"] if command == "predict" else ["--to", "onnx"]
    # The run does not exist either, but it would be read later.
    sentence = refuse(command, "none", *inputs, "--out", out)
    assert re.search(rf"{out} cannot be written: ({reason})\.\n", sentence)


def test_output_is_not_created_before_the_work(tmp_path: Path) -> None:
    assert "no run" in refuse("predict", "none", "none", "--out", tmp_path / "new" / "p.csv")
    assert not list((tmp_path / "new").iterdir())


def test_read_only_file_is_refused_before_the_work(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.touch(mode=0o444)
    if os.access(path, os.W_OK):
        pytest.skip("The superuser may write all files.")
    sentence = refuse("predict", "none", "none", "--out", path, "--overwrite")
    assert "p.csv cannot be written: Permission denied." in sentence


def test_unreadable_image_is_reported_and_the_others_are_predicted(
    run_folder: Path, images: Path
) -> None:
    (images / "0" / "broken.png").write_bytes(b"")
    result = call("predict", run_folder, images, "--which", "best")
    assert result.exit_code == 1
    assert "Skipped 0/broken.png: it is not an image that can be read." in result.output
    assert "Number of inputs that could not be read: 1." in result.output
    assert len(Path("predictions.csv").read_text().splitlines()) == 31
    refuse("predict", run_folder, images / "0" / "broken.png", "--out", "other.csv")
    assert not Path("other.csv").exists()


def test_wrong_arguments_are_refused_in_one_sentence(run_folder: Path, images: Path) -> None:
    for arguments, sentence in (
        ((run_folder, "none"), "There is no image, folder or table none."),
        (("none", images), "There is no run in the folder none."),
        (
            (run_folder, images, "--name", "x"),
            "has only one model, which has no name; omit 'x'.",
        ),
    ):
        assert sentence in refuse("predict", *arguments)
    assert not Path("predictions.csv").exists()


def test_export_writes_next_to_the_model(run_folder: Path) -> None:
    result = succeed("export", run_folder, "--to", "torchscript")
    output = " ".join(result.split())
    assert "It maps 'pixels' to 'probabilities'" in output
    assert "On 20 inputs it predicts the same classes as the original" in output
    assert (run_folder / "model.torchscript").exists()
    assert "already exists" in refuse("export", run_folder, "--to", "torchscript")
    succeed("export", run_folder, "--to", "state-dict", "--which", "best")
    assert (run_folder / "best.pt").exists()


def test_names_in_predictions_are_no_formulas(run_folder: Path, images: Path) -> None:
    (images / "0").rename(images / "=cmd|x")
    next(images.glob("7/*.png")).rename(images / "-1;=2\x1b[31m.png")
    output = succeed("predict", run_folder, images)
    assert "\x1b[31m" not in output
    text = Path("predictions.csv").read_text()
    assert "\x1b" not in text
    names = [row["file"] for row in csv.DictReader(text.splitlines())]
    assert any(name.startswith("'=cmd|x/") for name in names)
    assert "'-1;'=2\\x1b[31m.png" in names


def test_links_and_pipes_are_refused(run_folder: Path, images: Path) -> None:
    Path("mine.csv").write_text("thesis")
    Path("link.csv").symlink_to("mine.csv")
    for command in (["predict", run_folder, images], ["export", run_folder, "--to", "state-dict"]):
        error = refuse(*command, "--out", "link.csv", "--overwrite")
        assert "link.csv is a link to mine.csv" in error
    Path("other.csv").hardlink_to("mine.csv")
    succeed("predict", run_folder, images, "--out", "other.csv", "--overwrite")
    assert Path("mine.csv").read_text() == "thesis"
    os.mkfifo("pipe.csv")
    os.mkfifo("pipe.png")
    for name in ("pipe.csv", "pipe.png", "/dev/zero"):
        refuse("predict", run_folder, name)
