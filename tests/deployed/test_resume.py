"""A server app that is killed, on a real deployment."""

import pytest

from deployed_support import SITES, Deployment, check_like_embedded, history, names
from processes import wait_until

pytestmark = pytest.mark.deployment


def test_a_killed_server_app_goes_on_where_it_was(deployment: Deployment) -> None:
    """FedDyn, whose clients remember: on their own disks, through a restart of a site, too."""
    process, folder = deployment.run("feddyn", rounds=2)
    wait_until(lambda: history(folder), "a round is done", 120)
    wait_until(lambda: deployment.busy("north"), "the next round has begun at a site", 60)
    deployment.kill("flwr-serverapp")
    process.kill()
    assert len(history(folder)) == 1
    deployment.stop_site("south")
    wait_until(lambda: deployment.online() == len(SITES) - 1, "a site is offline")
    deployment.start_site("south")
    process, _ = deployment.run("feddyn", rounds=2, resume=folder)
    assert process.wait(timeout=240) == 0, deployment.said()
    assert [record.round for record in history(folder)] == [1, 2]
    assert [names(record) for record in history(folder)] == [sorted(SITES)] * 2
    check_like_embedded(folder, "feddyn", rounds=2)
