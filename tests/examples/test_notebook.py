"""The notebook in ``examples`` runs as it is, by the Python that runs the tests."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "cadis.ipynb"


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What became of its cells, executed in an empty folder."""
    kernels = tmp_path_factory.mktemp("kernels")
    folder = kernels / "kernels" / "python3"
    folder.mkdir(parents=True)
    launch = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    text = f'{{"argv": {launch!r}, "display_name": "Python 3", "language": "python"}}'
    (folder / "kernel.json").write_text(text.replace("'", '"'))
    before = os.environ.get("JUPYTER_PATH")
    os.environ["JUPYTER_PATH"] = str(kernels)  # before all other places: this very Python
    try:
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        client = NotebookClient(notebook, timeout=120, kernel_name="python3")
        client.resources = {"metadata": {"path": str(tmp_path_factory.mktemp("empty"))}}
        client.execute()
    finally:
        os.environ.pop("JUPYTER_PATH")
        if before is not None:
            os.environ["JUPYTER_PATH"] = before
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(cells: list[Any], source: str) -> list[Any]:
    """What the cell that has this in its source has shown."""
    (cell,) = [cell for cell in cells if source in cell.source]
    return list(cell.outputs)


def test_it_is_kept_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_a_run_has_one_line_that_has_reached_its_end(cells: list[Any]) -> None:
    shown = outputs(cells, 'result = train("cadis")')
    assert [each.output_type for each in shown] == ["display_data", "execute_result"]
    bar, result = shown
    line = r"round 15/15, accuracy 0\.\d+, \d clusters, [\d.]+ s"
    assert re.fullmatch(line, bar.data["text/plain"])
    assert '<progress max="15" value="15">' in bar.data["text/html"]
    assert result.data["text/plain"].startswith("RunResult(CADIS, 15 rounds, accuracy 0.")


def test_pictures_are_drawn_and_nobody_complains(cells: list[Any]) -> None:
    everything = [each for cell in cells for each in cell.outputs]
    assert sum("image/png" in each.get("data", {}) for each in everything) == 2
    assert not [each for each in everything if each.get("name") == "stderr"]
    assert len(str(everything)) < 400_000


def test_the_clusters_are_told(cells: list[Any]) -> None:
    (told,) = outputs(cells, "truly in")
    pairs = re.findall(r"found in (\d+), truly in (\d+)", told.text)
    assert len(pairs) == 10
