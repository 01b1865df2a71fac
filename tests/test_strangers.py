"""Tests that files of a stranger run no code unless the user allows it, and do no harm."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from torch import nn

import cadis
from cadis import CadisError, RunError
from cadis.algorithm.tasks import Classification
from cadis.cli.command_line import commands
from cadis.experiment import resolve, run_experiment
from cadis.models import small_cnn
from cadis.store import StudyFolder
from cadis.store.signature import SIGNATURE_FILE
from cli_support import refuse
from hostile_descriptions import encode, list_hostile_files, make_description, make_tensors
from hostile_descriptions import use_model as use_hostile_model
from own_parts import write_parts
from strangers import (
    NAMES,
    Attack,
    list_attacks,
    prepare_run,
    use_files,
    write_canaries,
    write_files,
)
from support import small_federation

Enter = Callable[[str], Path]

QUICK = {"rounds": 1, "epochs": 1, "workers": 1, "clients": 4, "ratio": "1"}
HARMLESS = {"report", "watch"}
"""Uses that show what a file names, and never need the code."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_run(tmp_path_factory.mktemp("stranger"))


@pytest.fixture
def enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Enter:
    """Return a function that makes a new current folder."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def make_folder(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        return folder

    return make_folder


def attack_and_check(attack: Attack, run: Path, folder: Path) -> None:
    """Use the files of a stranger: the code does not run, and an error says what they ask for."""
    marker = write_canaries(folder)
    write_files(attack, run)
    code, output = use_files(attack)
    assert not marker.exists(), attack
    assert "Traceback" not in output, attack
    needs_code = attack.use not in HARMLESS and attack.needs_code
    assert bool(code) == needs_code, (attack, output)
    if attack.name == NAMES[0] and needs_code:
        assert "asks to run the code" in output, (attack, output)
        assert "canary.py:net" in output
        assert "--trust (in Python: trust=True)" in output


@pytest.mark.parametrize("name", NAMES[1:])
def test_no_name_runs_code(name: str, run: Path, enter: Enter) -> None:
    for number, attack in enumerate(a for a in list_attacks() if a.name == name):
        attack_and_check(attack, run, enter(str(number)))


@pytest.mark.parametrize("attack", [attack for attack in list_attacks() if attack.name == NAMES[0]])
def test_no_place_and_no_use_runs_code(attack: Attack, run: Path, enter: Enter) -> None:
    attack_and_check(attack, run, enter("here"))


@pytest.mark.parametrize(
    ("place", "use"),
    [
        ("architecture", "predict"),
        ("description-task", "export"),
        ("model", "predict"),
        ("method", "run"),
        ("dataset", "resume"),
        ("sampler", "compare"),
        ("dataset", "study"),
    ],
)
def test_code_runs_if_the_user_trusts_it(place: str, use: str, run: Path, enter: Enter) -> None:
    marker = write_canaries(enter("here"))
    write_files(Attack(place, use), run)
    use_files(Attack(place, use), "--trust")
    assert marker.exists()


def test_trust_holds_for_one_call_only(enter: Enter) -> None:
    marker = write_canaries(enter("here"))
    content = encode(make_description(architecture="canary:net"), make_tensors())
    Path("model.safetensors").write_bytes(content)
    for trust in (False, True, False):
        with pytest.raises(CadisError) as error:
            cadis.load("model.safetensors", trust=trust)
        assert isinstance(error.value, cadis.permission.UntrustedCodeError) != trust
        assert marker.exists() == trust
        marker.unlink(missing_ok=True)


def make_net(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
    return small_cnn(channels, height, width, num_classes)


class Net(nn.Sequential):
    def __init__(self, channels: int, height: int, width: int, num_classes: int) -> None:
        super().__init__(*small_cnn(channels, height, width, num_classes).children())


class Task(Classification):
    pass


def test_model_or_class_of_the_user_needs_no_trust(enter: Enter) -> None:
    enter("here")
    description = make_description(architecture="gone.py:net") | {"task": "gone.py:Task"}
    Path("m.safetensors").write_bytes(encode(description, make_tensors()))
    Path("own.py").write_text("from cadis.models import small_cnn as net")
    for model in (small_cnn(1, 8, 8, 3), make_net, Net, "own.py:net"):
        for task in (Task, Task(), "classification"):
            assert cadis.load("m.safetensors", model=model, task=task).classes == (
                "cat",
                "dog",
                "hen",
            )


def test_command_in_its_own_process_runs_no_code(run: Path, enter: Enter) -> None:
    enter("here")
    write_files(Attack("architecture", "predict", "os:abort"), run)
    command = [sys.executable, "-m", "cadis", "predict", "model.safetensors", "image.png"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "asks to run the code 'os:abort'" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "file", "arguments"),
    [
        ('model = "canary.py:exp.toml"', "canary.py:exp.toml", ["run", "canary.py:exp.toml"]),
        (
            'method = "canary.py:exp.toml"',
            "canary.py:exp.toml",
            ["run", "canary.py:exp.toml", "-h"],
        ),
        ('task = "canary:p"', "e.toml", ["run", "e.toml", "--partition", "canary:p"]),
        ('task = "canary:p"', "e.toml", ["run", "e.toml", "--out", "canary:p"]),
        ('model = "canary:p"', "e.toml", ["run", "e.toml", "--dataset", "csv:x,canary:p"]),
        ('model = "canary:p"', "e.toml", ["compare", "e.toml", "--grid", "lr=1,canary:p"]),
    ],
)
def test_name_of_a_file_permits_no_code(
    content: str, file: str, arguments: list[str], enter: Enter
) -> None:
    marker = write_canaries(enter("here"))
    Path(file).write_text(content)
    CliRunner().invoke(commands, arguments)
    assert not marker.exists()


def test_error_lists_all_code_that_a_file_names(enter: Enter) -> None:
    write_canaries(enter("here"))
    Path("two.toml").write_text('model = "canary.py:net"\nmethod = "canary.py:Other"\n')
    assert "asks to run the code 'canary.py:Other', 'canary.py:net'" in refuse("run", "two.toml")


def begin_run(folder: Path) -> None:
    """Begin a run of the user's own method."""
    write_parts(folder)
    run_experiment(resolve({}, {**QUICK, "method": "own.py:Mine"}), folder / "run")


def continue_run(rounds: int) -> None:
    options = {**QUICK, "rounds": rounds, "method": "own.py:Mine"}
    run_experiment(resolve({}, options), Path("run"), resume=True)


def is_trusted(*arguments: str) -> bool:
    """Return whether a command loads the user's method; it is refused later in any case."""
    sentence = refuse("run", *arguments, "--momentum=1")
    if "momentum should be less than 1" in sentence or "--mine-momentum or" in sentence:
        return True
    assert "asks to run the code 'own.py:Mine'" in sentence
    return False


def test_error_about_an_option_of_untrusted_code_says_so(enter: Enter) -> None:
    begin_run(enter("here"))
    Path("hand.toml").write_text('method = "own.py:Mine"\n')
    assert "asks to run the code 'own.py:Mine'" in refuse("run", "hand.toml", "--parameter", "-1")
    trusted = refuse("run", "hand.toml", "--parameter", "-1", "--trust")
    assert "parameter should be greater than or equal to 0" in trusted


RESUME = ("--resume", "--out", "run")


def test_run_that_the_user_began_needs_no_trust(enter: Enter) -> None:
    folder = enter("here")
    begin_run(folder)
    (folder / "own.py").write_text((folder / "own.py").read_text() + "changed = True\n")
    assert is_trusted(*RESUME)
    assert is_trusted("run/config.toml")
    continue_run(rounds=2)
    assert is_trusted(*RESUME)
    Path("run/config.toml").unlink()
    assert is_trusted(*RESUME)  # the checkpoint has the options too
    shutil.move("run", "moved")
    assert is_trusted("--resume", "--out", "moved")


def test_other_file_of_the_same_name_is_not_trusted(enter: Enter) -> None:
    folder = enter("here")
    begin_run(folder)
    marker = write_canaries(enter("other"))
    shutil.copy("canary.py", "own.py")
    shutil.copytree(folder / "run", "run")
    assert not is_trusted(*RESUME)
    assert not is_trusted("run/config.toml")
    assert not marker.exists()


def test_signature_of_another_run_is_not_trusted(run: Path, enter: Enter) -> None:
    folder = enter("own")
    begin_run(folder)
    for number, attack in enumerate((Attack("method", "resume"), Attack("model", "run"))):
        here = enter(str(number))
        marker = write_canaries(here)
        write_files(attack, run)
        shutil.copy(folder / "run" / SIGNATURE_FILE, here / "run")
        assert use_files(attack)[0] == 2
        assert not marker.exists()


def test_changed_options_are_not_trusted(enter: Enter) -> None:
    begin_run(enter("here"))
    config, changed = Path("run/config.toml"), Path("changed/config.toml")
    changed.parent.mkdir()
    shutil.copy(config.with_name(SIGNATURE_FILE), "changed")
    changed.write_text(config.read_text().replace("rounds = 1\n", "rounds = 9\n"))
    assert is_trusted(str(changed))  # a resumed run may change its rounds
    changed.write_text(config.read_text().replace("seed = 0\n", "seed = 9\n"))
    assert not is_trusted(str(changed))


@pytest.mark.parametrize("damage", ["missing", "empty", "pipe", "folder", "long", "other"])
def test_run_without_a_valid_signature_needs_trust(damage: str, enter: Enter) -> None:
    begin_run(enter("here"))
    signature = Path("run", SIGNATURE_FILE)
    content = signature.read_bytes()
    signature.unlink()
    if damage == "pipe":
        os.mkfifo(signature)
    elif damage == "folder":
        signature.mkdir()
    elif damage != "missing":
        contents = {"empty": b"", "long": content * 2, "other": content[::-1]}
        signature.write_bytes(contents[damage])
    assert not is_trusted(*RESUME)
    assert is_trusted(*RESUME, "--trust")


def test_resuming_with_trust_does_not_sign_the_run(enter: Enter) -> None:
    begin_run(enter("here"))
    Path("run", SIGNATURE_FILE).unlink()
    continue_run(rounds=2)
    assert not is_trusted(*RESUME)


def test_key_is_private_and_another_key_signs_otherwise(
    enter: Enter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    begin_run(enter("here"))
    (key,) = (tmp_path / "home" / "cadis").iterdir()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(key.read_bytes()) == 32
    assert is_trusted(*RESUME)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    assert not is_trusted(*RESUME)


def test_unwritable_home_does_not_prevent_runs(
    enter: Enter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    begin_run(enter("here"))
    assert not Path("run", SIGNATURE_FILE).exists()
    assert not is_trusted(*RESUME)
    assert is_trusted(*RESUME, "--trust")


def test_run_of_built_in_parts_has_no_signature(run: Path) -> None:
    assert not (run / SIGNATURE_FILE).exists()


STEP = 7
"""Every seventh hostile file is tested here; ``make torture`` tests all."""


@pytest.fixture(scope="module")
def hostile() -> dict[str, bytes]:
    return dict(list_hostile_files())


def test_hostile_descriptions_are_refused_in_one_sentence(
    hostile: dict[str, bytes], tmp_path: Path
) -> None:
    path, count, sentences = tmp_path / "model.safetensors", 0, list[str]()
    for content in [*hostile.values()][::STEP]:
        path.write_bytes(content)
        count += 1
        try:
            use_hostile_model(path, tmp_path, "state-dict")
        except (CadisError, RunError) as error:
            sentences.append(str(error).replace(str(path), "FILE"))
    assert count >= 238
    assert not [sentence for sentence in sentences if len(sentence) > 400 or "\n" in sentence]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("two classes", "has 2 classes for 3 outputs of a model."),
        ("ten outputs", "has 3 classes for 10 outputs of a model."),
        ("equal classes", "has two classes of the same name."),
        (
            "ten outputs, ten classes",
            "are not those of the model small-cnn that the file describes",
        ),
        ("a resnet18", "are not those of the model resnet18 that the file describes"),
        ("images of 1000000000", "has more than 1,073,741,824 values per input."),
        ("mlp of 2048", "are not those of the model mlp"),
        ("dtype save", "inputs.dtype should be"),
        ("deep list", "invalid JSON: recursion limit exceeded"),
        ("header: length 18446744073709551615", "is not a model of cadis, or it is damaged"),
        ("header: huge empty tensor", "is not a model of cadis, or it is damaged"),
    ],
)
def test_error_says_what_is_wrong_with_a_description(
    name: str, sentence: str, hostile: dict[str, bytes], tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(hostile[name])
    with pytest.raises(CadisError) as error:
        cadis.load(path)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "..", "a/b", ""])
def test_study_has_no_folder_outside_of_its_own(name: str, run: Path, enter: Enter) -> None:
    enter("here")
    write_files(Attack("sampler", "study"), run)
    study = Path("study/study.json")
    study.write_text(study.read_text().replace('"first"', json.dumps(name)))
    with pytest.raises(CadisError, match="has a name that cannot be the name of a folder"):
        StudyFolder(Path("study")).read()


def test_pipe_in_a_run_is_not_read(run: Path, enter: Enter) -> None:
    enter("here")
    shutil.copytree(run, "run")
    Path("run/model.safetensors").unlink()
    os.mkfifo("run/model.safetensors")
    with pytest.raises(CadisError, match=r"cannot be read: it is not a regular file\.$"):
        cadis.load("run")


def test_two_classes_of_the_same_name_are_refused_before_training() -> None:
    federation = replace(small_federation(), classes=("a", "b", "c", "d", "a"))
    with pytest.raises(CadisError, match="2 classes have the name a; give every class its own"):
        federation.check(5)
