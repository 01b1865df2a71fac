"""What docs/predicting.md shows works as it stands there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import cadis
from cadis.data import digits

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "predicting.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def draw_digits(folder: Path) -> None:
    """Some digits of the test set in folders of their classes; the first of each is called 0."""
    test = digits().test.take(slice(0, 60))
    shades = (test.inputs - test.inputs.min()) / (test.inputs.max() - test.inputs.min())
    for number, label in enumerate(test.labels.tolist()):
        place = folder / str(label)
        place.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray((shades[number, 0] * 255).round().byte().numpy())
        picture.save(place / f"{len(list(place.iterdir()))}.png")


def write_cohort(folder: Path) -> None:
    """The table of docs/data.md, as its block writes it."""
    blocks = BLOCK.findall((DOCS / "data.md").read_text(encoding="utf-8"))
    (block,) = [block for _, block in blocks if block.startswith("# cohort.py")]
    subprocess.run([sys.executable, "-c", block], cwd=folder, check=True)


def test_the_page_as_it_stands(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    draw_digits(tmp_path / "pictures")
    write_cohort(tmp_path)
    said = {}
    for language, block in BLOCK.findall(PAGE):
        first, *lines = block.splitlines()
        if language == "python":
            commands = [["-c", "\n".join(lines)]]
        else:
            typed = [shlex.split(line, comments=True) for line in [first, *lines]]
            commands = [["-m", "cadis", *words] for program, *words in typed if program == "cadis"]
        for command in commands:
            done = subprocess.run(
                [sys.executable, *command],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            said[first] = done.stdout
    assert said["# use.py"].startswith("Predictor(small-cnn, 13,706 parameters: pictures of 1 x 8")
    assert said["# elsewhere.py"].strip() in map(str, range(10))
    told = cadis.load(tmp_path / "runs" / "cohort").predict(tmp_path / "cohort.csv")
    assert said["# rows.py"].split() == [prediction.label for prediction in told]
    assert len({*said["# rows.py"].split()}) == 2
    header = (tmp_path / "digits.csv").read_text().splitlines()[0]
    assert header in PAGE
    assert (tmp_path / "runs" / "digits" / "MODEL_CARD.md").exists()
