"""The public names, the lazy imports and the version of the package."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import cadis

PACKAGES = sorted(
    path.parent.name for path in Path(cadis.__file__).parent.glob("[a-z]*/__init__.py")
)


@pytest.mark.parametrize("name", PACKAGES)
def test_every_package_is_imported_on_first_use(name: str) -> None:
    assert cadis.__getattr__(name).__name__ == f"cadis.{name}"  # type: ignore[attr-defined]


def test_public_names_exist_and_unknown_names_do_not() -> None:
    assert {*cadis.__all__, *PACKAGES} <= set(dir(cadis))
    assert all(getattr(cadis, name).__name__ == name for name in cadis.__all__)
    assert "analysis" in dir(cadis)
    assert not hasattr(cadis, "nothing")
    assert not hasattr(cadis, "__main__")


def test_importing_cadis_does_not_import_torch() -> None:
    code = "import sys, cadis; dir(cadis); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_version_is_the_same_in_all_files() -> None:
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {project['version']}\n" in citation
