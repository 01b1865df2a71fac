"""Without the extra, a sentence says what to install."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("code", ["import cadis.flower", "import cadis; cadis.flower"])
def test_without_flower(code: str) -> None:
    command = [sys.executable, "-c", f"import sys; sys.modules['flwr'] = None; {code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "CadisError: Install Flower first: pip install 'cadis[flower]'." in done.stderr
