"""A deployment for all tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deployed_support import PATH, PROGRAMS, SITES, Deployment, free_port, listens
from processes import processes, wait_until


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The server, and all sites connected to it."""
    place = tmp_path_factory.mktemp("deployment")
    port, folder = free_port(), place / "federation"
    sites = [word for site in SITES for word in ("--site", site)]
    init: list[str | Path] = [PROGRAMS / "cadis", "deploy", "init", folder]
    command = [*init, *sites, "--port", str(port)]
    with processes(place) as started:
        assert started.finish("init", command) == 0, started.said("init")
        made = Deployment(folder, started, port)
        made.write_data()
        started.start("superlink", [folder / "superlink" / "start.sh"], PATH)
        wait_until(lambda: listens(port), "the server listens")
        assert started.finish("register", [folder / "register.sh"], PATH) == 0
        for site in SITES:
            made.start_site(site)
        wait_until(lambda: made.online() == len(SITES), "all sites are online", 180)
        yield made
    assert not started.alive()
