"""What the README shows works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs_as_it_stands(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) < 10
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, cwd=tmp_path, text=True
    )
    accuracy, _, clusters = result.stdout.partition(" ")
    assert float(accuracy) > 0.5
    assert clusters == "[0, 0, 0, 0, 0, 0, 0, 1, 1, 1]\n"


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (Path(__file__).parents[1] / target).exists(), target
