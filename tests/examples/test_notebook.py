"""The notebook in ``examples`` runs, with the Python of the tests."""

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
    """Return the code cells after execution in an empty folder."""
    kernels = tmp_path_factory.mktemp("kernels")
    folder = kernels / "kernels" / "python3"
    folder.mkdir(parents=True)
    launch = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    text = f'{{"argv": {launch!r}, "display_name": "Python 3", "language": "python"}}'
    (folder / "kernel.json").write_text(text.replace("'", '"'))
    before = os.environ.get("JUPYTER_PATH")
    os.environ["JUPYTER_PATH"] = str(kernels)  # first in the search path: the Python of the tests
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


def get_outputs(cells: list[Any], source: str) -> list[Any]:
    """Return the outputs of the cell with this text in its source."""
    (cell,) = [cell for cell in cells if source in cell.source]
    return list(cell.outputs)


def test_notebook_is_stored_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_run_shows_one_complete_progress_bar(cells: list[Any]) -> None:
    displayed = get_outputs(cells, 'result = train("cadis")')
    assert [output.output_type for output in displayed] == ["display_data", "execute_result"]
    bar, result = displayed
    line = r"round 15/15, accuracy 0\.\d+, \d clusters, [\d.]+ s"
    assert re.fullmatch(line, bar.data["text/plain"])
    assert '<progress max="15" value="15">' in bar.data["text/html"]
    assert result.data["text/plain"].startswith("RunResult(CADIS, 15 rounds, accuracy 0.")


def test_notebook_draws_figures_without_warnings(cells: list[Any]) -> None:
    everything = [output for cell in cells for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in everything) == 2
    assert not [output for output in everything if output.get("name") == "stderr"]
    assert len(str(everything)) < 400_000


def test_notebook_prints_clusters(cells: list[Any]) -> None:
    (output,) = get_outputs(cells, "true cluster ")
    pairs = re.findall(r": cluster (\d+), true cluster (\d+)", output.text)
    assert len(pairs) == 10
