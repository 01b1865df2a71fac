"""Wrong options end a command with one sentence and exit code 2, before anything is written."""

import subprocess
import sys
from pathlib import Path

import pytest

from cli_support import call, refuse
from own_parts import write_parts

WRONG = [
    ("run --method magic", "There is no method 'magic'"),
    ("run --clients 5 --per-round 9", "per_round is 9, but the federation has only 5 clients"),
    ("run --rounds 0", "rounds should be greater than 0"),
    ("run --epochs x", "epochs should be a valid integer"),
    ("run --eval-every 0", "eval_every should be greater than 0"),
    ("run --clients 4 --partition mc", "4 clients cannot form 5 clusters"),
    ("run --clients 2000", "2000 clients with at least 2 samples each are too many"),
    ("run --clients 1000000000", "1000000000 clients with at least 2 samples each are too many"),
    ("run --method fedavg --mu 1", "'mu' is a parameter of fedprox"),
    ("run --method fedavg --threshold 0.5", "'threshold' is a parameter of "),
    ("run --threshold 2", "threshold should be less than or equal to 1"),
    ("run --transforms clip --max-norm -1", "max_norm should be greater than 0"),
    ("run --resume", "Give the folder of the run to continue"),
    ("run --resume --out none", "no run in the folder"),
    ("run no.toml", "no.toml cannot be read"),
    ("run --device cuda", "no 'cuda' device"),
    ("run --track paper", "There is no tracker 'paper'"),
    ("run --gamma inf", "gamma should be a finite number, not inf."),
    ("run --gamma 1e400", "gamma should be a finite number"),
    ("run --lr nan", "lr should be greater than 0, not 'nan'."),
    ("run --lr abc", "lr should be a valid number"),
    ("run --workers 1000000", "workers should be less than or equal to 1024"),
    (f"run --rounds 1{'0' * 30}", "rounds should be an integer of at most 64 bits"),
    ("run --partition pa --exponent inf", "exponent should be a finite number"),
    ("run --partition dirichlet --concentration inf", "concentration should be"),
    ("run --ratio 0:0", "ratio should be greater than 0"),
    ("run --head \udcff", "head should be valid UTF-8 text"),
    ("run --head top", "no linear layer 'top'; it has: 7, 9"),
    ("run --model nothing", "There is no model 'nothing'"),
    ("run --model sys:exit", "sys:exit could not build a model: SystemExit"),
    ("run --model nowhere:net", "The module nowhere could not be imported"),
    ("run --dataset nothing", "There is no dataset 'nothing'"),
    ("run --dataset mnist --offline", "mnist is missing: it is not in"),
    ("run --dataset images:none", "There is no folder none; "),
    ("run --dataset images:", "as in images:FOLDER"),
    ("run --preset mnist", "There is no preset 'mnist'"),
    ("run some.toml --preset mnist-mc-10", "either a file or a preset"),
    ("run --partition none.json", "none.json cannot be read"),
    ("run --sampler uniformly", "There is no sampler 'uniformly'; did you mean 'uni"),
    ("run --augment flop", "There is no augmentation 'flop'; did you mean 'flip'?"),
    ("run --method none.py:Mine --x 3", "There is no file none.py; give its path"),
    ("run --method none.py:Mine --help", "There is no file none.py; give its path"),
    ("run --method own.py:Yours", "The file own.py has no function or class 'Yours'."),
    ("run --method own.py:Halve", "Halve lacks pools_clients, "),
    (
        "run --sampler own.py:Mine",
        "Mine lacks needs_clusters, needs_profiles, choose and learn; derive it from cadis.",
    ),
    ("run --method own.py:Mine --parameter x", "parameter should be a valid integ"),
    ("run --method own.py:Mine --mine-parameter -3", "parameter should be greater"),
    ("run --method own.py:Mine --momentum 1", "write --mine-momentum or --sgd-mo"),
    ("compare --methods fedavg,magic", "There is no method 'magic'"),
    ("compare --methods fedavg --mu 1", "'mu' is a parameter of fedprox"),
    ("compare --methods none.py:Mine", "There is no file none.py"),
    ("compare --methods own.py:Mine,./own.py:Mine", "Two methods are called 'mine'"),
    ("compare --alpha 0.3", "write --fedfa-alpha or --feddyn-alpha."),
    ("compare --targets high", "A target is an accuracy such as 0.9 or 90%"),
    ("compare --targets 3", "A target is an accuracy such as 0.9 or 90%"),
    ("compare --targets nan", "A target is an accuracy such as 0.9"),
    ("compare --targets 1e400", "A target is an accuracy such as 0.9"),
    ("compare --seed x", "seed should be a valid integer"),
    ("compare --seed inf", "seed should be a valid integer"),
    (f"compare --seed {2**63 - 1}", "seed should be an integer of at most 64 bits"),
    ("compare --seeds 1000000000", "would have 6000000000 runs, more than the maximum of 1000"),
    ("compare --track paper", "There is no tracker 'paper'"),
    ("compare --preset nothing", "There is no preset 'nothing'"),
    ("compare --grid method=fedavg,cadis", "name the methods with --methods"),
    ("compare --grid rounds=1,2 --rounds 3", "The grid varies 'rounds'"),
    ("sweep", "Name an option to vary"),
    ("sweep --grid treshold=1", "did you mean 'threshold'?"),
    ("sweep --grid mine-parameter=1,2", "There is no option 'mine_parameter'"),
    ("sweep --grid lr=0.1 --lr 1", "The grid varies 'lr'"),
    ("sweep --grid threshold=0.5,2", "threshold should be less than or equal to 1"),
    (f"sweep --grid lr={','.join(map(str, range(1, 2000)))}", "would have 1999 runs"),
    ("sweep --grid gamma=0.1,inf", "gamma should be a finite number, not inf"),
    ("report nowhere", "There is no run and no comparison in the folder nowhere."),
    ("report nowhere --out page.pdf", "name it page.html"),
    ("watch nowhere", "There is no run and no comparison in the folder nowhere."),
    ("layer --classes 0,1,12", "12"),
    ("methods scafold", "did you mean 'scaffold'?"),
    ("presets mnist", "There is no preset 'mnist'"),
    ("partition --clients 1000", "1000 clients with at least 2 samples each are too many"),
    ("partition --out mc.txt", "name it mc.json"),
    ("partition --out mc.clusters.json", "name it mc.json"),
    ("partition --figure p.xyz", "name it p.png"),
    ("data fetch mnits", "no dataset to fetch 'mnits'; did you mean 'mnist'?"),
    ("data verify digits", "no dataset to verify 'digits'"),
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CADIS_DATA", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.mark.parametrize(("command", "sentence"), WRONG, ids=lambda text: ascii(text)[:60])
def test_wrong_input_is_refused_in_one_sentence_and_writes_nothing(
    command: str, sentence: str, here: Path
) -> None:
    files = {write_parts(here)} if "own.py" in command else set()
    assert sentence in refuse(*command.split(" "))
    assert {path for path in here.iterdir() if path.name != "__pycache__"} == files


NAMES = [("", "the path is empty"), ("a\udcff", "is not UTF-8"), ("a\0b", "cannot be a path")]
MISTYPED = [
    *(([command, "--out", name, "x"], problem)
      for command in ("run", "compare", "sweep", "partition", "report")
      for name, problem in NAMES),  # an empty path would mean the current folder
    (["partition", "--rounds", "3"], "No such option"),
    (["run", "--methd", "cadis"], "No such option"),
    (["run", "--seed"], "requires an argument"),
    (["compare", "--seeds", "0"], "--seeds"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "problem"), MISTYPED)
def test_mistyped_command_is_refused(arguments: list[str], problem: str, here: Path) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert "Traceback" not in result.output
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--epochs", "x"], ["--method", "nothing.py:Mine"]])
def test_error_is_one_line_on_stderr(arguments: list[str]) -> None:
    command_line = [sys.executable, "-m", "cadis", "run", *arguments]
    done = subprocess.run(command_line, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("cadis: ")
