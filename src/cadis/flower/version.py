"""Check the version of Flower; ``python -m cadis.flower.version`` does this in each script."""

import re
import sys
from importlib.metadata import version

from cadis.errors import CadisError

_LOWEST, _FIRST_UNSUPPORTED = (1, 40), (2, 0)


def check_flower_version(installed: str) -> None:
    """Raise an error unless this version of Flower is supported.

    Older versions have other addresses for sites, which the gateway does not know.
    """
    match = re.match(r"(\d+)\.(\d+)", installed)
    if match is None or not _LOWEST <= (int(match[1]), int(match[2])) < _FIRST_UNSUPPORTED:
        raise CadisError(
            f"Flower {installed} is not supported; install another version with: "
            "pip install 'flwr>=1.40,<2'"
        )


def main() -> int:
    """Check the installed version; return 2 and print one sentence if it is not supported."""
    try:
        check_flower_version(version("flwr"))
    except CadisError as error:
        print(f"cadis: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
