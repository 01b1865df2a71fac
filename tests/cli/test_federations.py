"""``cadis data``, ``cadis partition``, ``cadis presets``, and runs on other data than digits."""

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cadis.data.published import CATALOGUE
from cadis.experiment import resolve, run_experiment
from cli_support import call, refuse, succeed
from support import draw_picture, draw_pills
from toy import TOY, write_dataset

QUICK = ["--rounds", "1", "--epochs", "1", "--workers", "1"]


@pytest.fixture(autouse=True)
def _use_temporary_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CADIS_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def read_config(run: str) -> str:
    return Path(run, "config.toml").read_text(encoding="utf-8")


def test_data_lists_downloaded_and_missing_datasets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CATALOGUE, "toy", TOY)
    write_dataset(tmp_path / "data" / "toy")
    text = succeed("data", "--data-dir", str(tmp_path / "data"))
    assert f"{tmp_path}/data/toy" in text
    assert text.count("not downloaded") == 4
    assert "images:FOLDER" in text
    assert "already in" in succeed("data", "fetch", "toy", "--data-dir", str(tmp_path / "data"))


def test_data_verify_names_missing_and_damaged_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CATALOGUE, "toy", TOY)
    write_dataset(tmp_path / "data" / "toy")
    folder = ["--data-dir", str(tmp_path / "data")]
    assert "toy: all 4 files in" in succeed("data", "verify", "toy", *folder)
    assert "mnist: not downloaded" in succeed("data", "verify", *folder)
    assert call("data", "verify", "mnist", *folder).exit_code == 1
    lost = tmp_path / "data" / "toy" / "t10k-labels-idx1-ubyte"
    content = lost.read_bytes()
    lost.unlink()
    result = call("data", *folder, "verify")
    assert result.exit_code == 1
    assert f"toy: {lost.parent} lacks {lost.name}" in result.output
    lost.write_bytes(content)
    damaged = tmp_path / "data" / "toy" / "train-labels-idx1-ubyte"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    result = call("data", *folder, "verify")
    assert result.exit_code == 1
    assert f"toy: {damaged} is not the published file of this name" in result.output
    assert call("data", "fetch", "toy", *folder).exit_code == 2  # no mirror has it


def test_presets_lists_all_and_shows_one() -> None:
    text = succeed("presets")
    assert "cifar100-uc-10" in text
    assert "79.71" in text
    assert 'model = "cnn"' in succeed("presets", "mnist-mc-10")


def test_figures_of_different_options_have_different_names() -> None:
    names = set()
    for options in ([], ["--clients", "30"], ["--seed", "1"], ["--preset", "mnist-bc-10"]):
        dataset = ["--dataset", "digits"] if "--preset" in options else []
        names.add(succeed("partition", *options, *dataset).split()[-1])
    assert len(names) == 4
    before = Path("runs/partition-digits-mc.png").read_bytes()
    assert "runs/partition-digits-mc.png" in succeed("partition")  # the same command replaces it
    assert Path("runs/partition-digits-mc.png").read_bytes() == before


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_figure_does_not_replace_a_file_of_another_program(kind: str) -> None:
    mine = Path(f"mine.{kind}")
    succeed("partition", "--figure", str(mine))
    succeed("partition", "--figure", str(mine), "--seed", "1")
    mine.write_text("precious")
    result = refuse("partition", "--figure", str(mine))
    assert f"{mine} exists and is not a figure of cadis" in result
    assert mine.read_text() == "precious"


def test_partition_file_gives_the_same_run_as_its_options() -> None:
    text = succeed("partition", "--out", "mc.json", "--seed", "3")
    assert "label skew" in text
    assert "clusters" in text
    assert Path("runs/partition-digits-mc-seed-3.png").read_bytes().startswith(b"\x89PNG")
    succeed("run", *QUICK, "--partition", "mc.json", "--seed", "3", "--out", "from-file")
    succeed("run", *QUICK, "--seed", "3", "--out", "split")
    one, other = (
        json.loads(Path(run, "federation.json").read_text()) for run in ("from-file", "split")
    )
    assert one == other  # including the true clusters
    first, second = (load_file(Path(run, "model.safetensors")) for run in ("from-file", "split"))
    assert all(torch.equal(first[name], second[name]) for name in (*first, *second))


@pytest.mark.parametrize("name", ["bc", "pa", "dirichlet", "iid"])
def test_partition_of_every_kind(name: str) -> None:
    text = succeed("partition", "--partition", name, "--clients", "50", "--figure", "p.png")
    assert f"digits, {name}" in text
    assert Path("p.png").exists()


def test_run_on_an_image_folder_skips_broken_images() -> None:
    draw_pills(Path("pills"), clients=3, beside=True)
    (Path("pills") / "pill_cropped" / "client-0-0.png").write_bytes(b"broken")
    options = ["--dataset", "images:pills", "--image-size", "64", "--model", "resnet18"]
    text = succeed("run", *QUICK, *options, "--out", "run")
    assert "reading images" in text
    assert "Skipped pills/pill_cropped/client-0-0.png" in text
    assert 'partition = "clients"' in read_config("run")
    assert "clients = 3" in read_config("run")
    classes = json.loads(Path("run/federation.json").read_text())["classes"]
    assert classes == ["pill-a", "pill-b", "pill-c"]


def test_names_with_markup_are_shown_unchanged() -> None:
    names = {"[/x]": "$x^2$", "[red]y": "Paracetamol 500 mg film-coated tablets", "名": "c"}
    for number, (client, kind) in enumerate(names.items()):
        for n in range(4):
            draw_picture(Path("photos", client.replace("/", "|"), kind, f"{n}.png"), number, seed=n)
    options = ["--dataset", "images:photos", "--image-size", "16"]
    text = succeed("partition", *options)
    assert "[|x]" in text
    assert "[red]y" in text
    succeed("run", *QUICK, *options, "--out", "run")
    Path("p.json").write_text(json.dumps({"[/x]": [1, 4], "[bold]b": [2, 3]}))
    assert "[/x]" in succeed("partition", "--partition", "p.json")


def test_few_classes_give_fewer_clusters() -> None:
    for n in range(40):
        draw_picture(Path("photos", "ab"[n % 2], f"{n}.png"), colour=n, seed=n)
    options = ["--dataset", "images:photos", "--image-size", "16", "--clients", "6"]
    assert "a" in succeed("partition", *options)
    succeed("run", *QUICK, *options, "--out", "r")
    assert tomllib.loads(read_config("r"))["mc"]["ratio"] == [2, 1]


def test_partition_of_a_preset(real_data: Callable[[str], Path]) -> None:
    text = succeed("partition", "--preset", "mnist-bc-10", "--data-dir", str(real_data("mnist")))
    assert "mnist, bc" in text


def test_model_with_too_many_outputs_is_refused() -> None:
    Path("wide.py").write_text(
        "from torch import nn\ndef net(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 13))\n"
    )
    result = refuse("run", *QUICK, "--model", "wide:net", "--out", "run")
    assert "predicts 13 classes, but the data have 10" in result


def test_run_with_a_user_defined_model() -> None:
    Path("mine.py").write_text(
        "from torch import nn\n"
        "def net(channels, height, width, num_classes):\n"
        "    flat = channels * height * width\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(flat, 9), nn.Linear(9, num_classes))\n"
    )
    succeed("run", *QUICK, "--model", "mine:net", "--out", "run")
    assert 'model = "mine:net"' in read_config("run")


def test_resumed_run_finds_moved_data() -> None:
    for n in range(24):
        draw_picture(Path("photos") / "abc"[n % 3] / f"{n}.png", colour=n, seed=n)
    options = {"dataset": "images:photos", "image_size": 16, "clients": 4, "ratio": "1:1"}
    options |= {"rounds": 1, "epochs": 1, "workers": 1}
    run_experiment(resolve({}, options), Path("run"))
    text = succeed("run", "--resume", "--rounds", "2", "--out", "run", "--data-dir", "elsewhere")
    assert "round 2/2" in text
    Path("photos").rename("moved")
    moved = ["--dataset", "images:moved", "--rounds", "3"]
    assert "round 3/3" in succeed("run", "--resume", "--out", "run", *moved)


def test_real_mnist(real_data: Callable[[str], Path]) -> None:
    options = ["--dataset", "mnist", "--model", "cnn", "--partition", "mc", "--clients", "100"]
    folder = ["--data-dir", str(real_data("mnist")), "--offline", "--test-clients", "0"]
    succeed("run", *QUICK, *options, *folder, "--per-round", "3", "--out", "run")
    clients = json.loads(Path("run/federation.json").read_text())["clients"]
    assert len(clients) == 100
    assert sum(client["cluster"] == 0 for client in clients) == 30


def test_real_cifar_with_resnet9(real_data: Callable[[str], Path]) -> None:
    options = ["--dataset", "cifar10", "--clients", "400", "--per-round", "1"]
    folder = ["--data-dir", str(real_data("cifar10")), "--offline", "--test-clients", "0"]
    succeed("run", *QUICK, *options, *folder, "--partition", "iid", "--out", "run")
    assert 'model = "resnet9"' in read_config("run")


def test_download_from_a_mirror_is_verified(
    real_data: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = real_data("mnist") / "mnist"
    if not source.is_dir():
        pytest.skip("mnist is in another folder")
    shutil.copytree(source, "mirror/mnist")
    monkeypatch.setenv("CADIS_MIRROR", Path("mirror").absolute().as_uri())
    text = succeed("data", "fetch", "mnist", "--data-dir", "fetched")
    assert "downloading train-images-idx3-ubyte.gz" in text
    assert "all 4 files" in succeed("data", "verify", "mnist", "--data-dir", "fetched")


def test_image_cache_is_listed_and_cleared(tmp_path: Path) -> None:
    pills = tmp_path / "pills"
    draw_pills(pills, clients=3, beside=True)
    command = ("partition", "--dataset", f"images:{pills}", "--image-size", "8")
    succeed(*command, "--figure", str(tmp_path / "a.png"), "--no-cache")
    assert not (tmp_path / "cache" / "cadis" / "pictures").exists()
    succeed(*command, "--figure", str(tmp_path / "a.png"))
    output = succeed("data", "cache")
    assert str(pills) in output
    assert "at most 10 GB" in output
    assert "Deleted" in succeed("data", "cache", "--clear")
    assert str(pills) not in succeed("data", "cache")
