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
from toy import TOY, put

QUICK = ["--rounds", "1", "--epochs", "1", "--workers", "1"]


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CADIS_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def config_of(run: str) -> str:
    return Path(run, "config.toml").read_text(encoding="utf-8")


def test_data_lists_what_is_there_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CATALOGUE, "toy", TOY)
    put(tmp_path / "data" / "toy")
    text = succeed("data", "--data-dir", str(tmp_path / "data"))
    assert f"{tmp_path}/data/toy" in text
    assert text.count("missing") == 4
    assert "images:FOLDER" in text
    assert "already in" in succeed("data", "fetch", "toy", "--data-dir", str(tmp_path / "data"))


def test_data_verify_names_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOGUE, "toy", TOY)
    put(tmp_path / "data" / "toy")
    where = ["--data-dir", str(tmp_path / "data")]
    assert "toy: all 4 files in" in succeed("data", "verify", "toy", *where)
    assert "mnist: missing" in succeed("data", "verify", *where)
    assert call("data", "verify", "mnist", *where).exit_code == 1
    lost = tmp_path / "data" / "toy" / "t10k-labels-idx1-ubyte"
    content = lost.read_bytes()
    lost.unlink()
    result = call("data", *where, "verify")
    assert result.exit_code == 1
    assert f"toy: {lost.parent} lacks {lost.name}" in result.output
    lost.write_bytes(content)
    damaged = tmp_path / "data" / "toy" / "train-labels-idx1-ubyte"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    result = call("data", *where, "verify")
    assert result.exit_code == 1
    assert f"toy: {damaged} does not contain what was published" in result.output
    assert call("data", "fetch", "toy", *where).exit_code == 2  # it tries, and there is no mirror


def test_presets_are_listed_and_shown() -> None:
    text = succeed("presets")
    assert "cifar100-uc-10" in text
    assert "79.71" in text
    assert 'model = "cnn"' in succeed("presets", "mnist-mc-10")


def test_no_picture_replaces_another_one() -> None:
    names = set()
    for given in ([], ["--clients", "30"], ["--seed", "1"], ["--preset", "mnist-bc-10"]):
        dataset = ["--dataset", "digits"] if "--preset" in given else []
        names.add(succeed("partition", *given, *dataset).split()[-1])
    assert len(names) == 4
    before = Path("runs/partition-digits-mc.png").read_bytes()
    assert "runs/partition-digits-mc.png" in succeed("partition")  # the same command may
    assert Path("runs/partition-digits-mc.png").read_bytes() == before


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_a_picture_replaces_none_but_ours(kind: str) -> None:
    mine = Path(f"mine.{kind}")
    succeed("partition", "--figure", str(mine))
    succeed("partition", "--figure", str(mine), "--seed", "1")
    mine.write_text("precious")
    result = refuse("partition", "--figure", str(mine))
    assert f"{mine} is there already, and not drawn by cadis" in result
    assert mine.read_text() == "precious"


def test_partition_shows_draws_and_writes() -> None:
    text = succeed("partition", "--out", "mc.json", "--seed", "3")
    assert "label skew" in text
    assert "clusters" in text
    assert Path("runs/partition-digits-mc-seed-3.png").read_bytes().startswith(b"\x89PNG")
    succeed("run", *QUICK, "--partition", "mc.json", "--seed", "3", "--out", "from-file")
    succeed("run", *QUICK, "--seed", "3", "--out", "dealt")
    one, other = (
        json.loads(Path(run, "federation.json").read_text()) for run in ("from-file", "dealt")
    )
    assert one == other  # the true clusters included
    first, second = (load_file(Path(run, "model.safetensors")) for run in ("from-file", "dealt"))
    assert all(torch.equal(first[name], second[name]) for name in (*first, *second))


@pytest.mark.parametrize("name", ["bc", "pa", "dirichlet", "iid"])
def test_partition_of_every_kind(name: str) -> None:
    text = succeed("partition", "--partition", name, "--clients", "50", "--figure", "p.png")
    assert f"digits, {name}" in text
    assert Path("p.png").exists()


def test_a_drawn_pill_folder_with_resnet18() -> None:
    draw_pills(Path("pills"), clients=3, beside=True)
    (Path("pills") / "pill_cropped" / "client-0-0.png").write_bytes(b"broken")
    options = ["--dataset", "images:pills", "--image-size", "64", "--model", "resnet18"]
    text = succeed("run", *QUICK, *options, "--out", "run")
    assert "reading pictures" in text
    assert "Skipped pills/pill_cropped/client-0-0.png" in text
    assert 'partition = "clients"' in config_of("run")
    assert "clients = 3" in config_of("run")
    classes = json.loads(Path("run/federation.json").read_text())["classes"]
    assert classes == ["pill-a", "pill-b", "pill-c"]


def test_names_mean_nothing_but_themselves() -> None:
    names = {"[/x]": "$x^2$", "[red]y": "Paracetamol 500 mg film-coated tablets", "名": "c"}
    for number, (client, kind) in enumerate(names.items()):
        for n in range(4):
            draw_picture(Path("album", client.replace("/", "|"), kind, f"{n}.png"), number, seed=n)
    options = ["--dataset", "images:album", "--image-size", "16"]
    text = succeed("partition", *options)
    assert "[|x]" in text
    assert "[red]y" in text
    succeed("run", *QUICK, *options, "--out", "run")
    Path("p.json").write_text(json.dumps({"[/x]": [1, 4], "[bold]b": [2, 3]}))
    assert "[/x]" in succeed("partition", "--partition", "p.json")


def test_few_classes_make_few_clusters() -> None:
    for n in range(40):
        draw_picture(Path("album", "ab"[n % 2], f"{n}.png"), colour=n, seed=n)
    options = ["--dataset", "images:album", "--image-size", "16", "--clients", "6"]
    assert "a" in succeed("partition", *options)
    succeed("run", *QUICK, *options, "--out", "r")
    assert tomllib.loads(config_of("r"))["mc"]["ratio"] == [2, 1]


def test_a_presets_federation_can_be_looked_at(real_data: Callable[[str], Path]) -> None:
    text = succeed("partition", "--preset", "mnist-bc-10", "--data-dir", str(real_data("mnist")))
    assert "mnist, bc" in text


def test_too_wide_a_model_is_refused_before_it_is_trained() -> None:
    Path("wide.py").write_text(
        "from torch import nn\ndef net(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 13))\n"
    )
    result = refuse("run", *QUICK, "--model", "wide:net", "--out", "run")
    assert "tells 13 classes apart, but the data have 10" in result


def test_a_model_of_ones_own() -> None:
    Path("mine.py").write_text(
        "from torch import nn\n"
        "def net(channels, height, width, num_classes):\n"
        "    flat = channels * height * width\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(flat, 9), nn.Linear(9, num_classes))\n"
    )
    succeed("run", *QUICK, "--model", "mine:net", "--out", "run")
    assert 'model = "mine:net"' in config_of("run")


def test_a_run_goes_on_where_its_data_are_now() -> None:
    for n in range(24):
        draw_picture(Path("album") / "abc"[n % 3] / f"{n}.png", colour=n, seed=n)
    options = {"dataset": "images:album", "image_size": 16, "clients": 4, "ratio": "1:1"}
    options |= {"rounds": 1, "epochs": 1, "workers": 1}
    run_experiment(resolve({}, options), Path("run"))
    text = succeed("run", "--resume", "--rounds", "2", "--out", "run", "--data-dir", "elsewhere")
    assert "round 2/2" in text
    Path("album").rename("moved")
    moved = ["--dataset", "images:moved", "--rounds", "3"]
    assert "round 3/3" in succeed("run", "--resume", "--out", "run", *moved)


def test_real_mnist(real_data: Callable[[str], Path]) -> None:
    options = ["--dataset", "mnist", "--model", "cnn", "--partition", "mc", "--clients", "100"]
    where = ["--data-dir", str(real_data("mnist")), "--offline", "--test-clients", "0"]
    succeed("run", *QUICK, *options, *where, "--per-round", "3", "--out", "run")
    clients = json.loads(Path("run/federation.json").read_text())["clients"]
    assert len(clients) == 100
    assert sum(client["cluster"] == 0 for client in clients) == 30


def test_real_cifar_with_resnet9(real_data: Callable[[str], Path]) -> None:
    options = ["--dataset", "cifar10", "--clients", "400", "--per-round", "1"]
    where = ["--data-dir", str(real_data("cifar10")), "--offline", "--test-clients", "0"]
    succeed("run", *QUICK, *options, *where, "--partition", "iid", "--out", "run")
    assert 'model = "resnet9"' in config_of("run")


def test_a_real_download(real_data: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """From a place of one's own, with the published checksums."""
    source = real_data("mnist") / "mnist"
    if not source.is_dir():
        pytest.skip("mnist lies in another folder")
    shutil.copytree(source, "mirror/mnist")
    monkeypatch.setenv("CADIS_MIRROR", Path("mirror").absolute().as_uri())
    text = succeed("data", "fetch", "mnist", "--data-dir", "fetched")
    assert "downloading train-images-idx3-ubyte.gz" in text
    assert "all 4 files" in succeed("data", "verify", "mnist", "--data-dir", "fetched")


def test_the_cache_of_pictures_is_listed_and_cleared(tmp_path: Path) -> None:
    pills = tmp_path / "pills"
    draw_pills(pills, clients=3, beside=True)
    shown = ("partition", "--dataset", f"images:{pills}", "--image-size", "8")
    succeed(*shown, "--figure", str(tmp_path / "a.png"), "--no-cache")
    assert not (tmp_path / "cache" / "cadis" / "pictures").exists()
    succeed(*shown, "--figure", str(tmp_path / "a.png"))
    listed = succeed("data", "cache")
    assert str(pills) in listed
    assert "at most 10 GB" in listed
    assert "Removed" in succeed("data", "cache", "--clear")
    assert str(pills) not in succeed("data", "cache")
