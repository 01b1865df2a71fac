"""A site that dies, on a real deployment."""

import pytest

from deployed_support import SITES, Deployment, history, names
from processes import wait_until

pytestmark = pytest.mark.deployment


def test_the_run_goes_on_without_a_site_that_dies(deployment: Deployment) -> None:
    process, folder = deployment.run("cadis", rounds=3, more="timeout=40.0")
    wait_until(lambda: history(folder), "a round is done", 120)
    wait_until(lambda: deployment.busy("west"), "the next round has begun at the site", 60)
    deployment.kill_site("west")
    assert process.wait(timeout=240) == 0, deployment.said()
    records = history(folder)
    assert [record.round for record in records] == [1, 2, 3]
    assert names(records[0]) == sorted(SITES)
    assert names(records[1]) == ["north", "south"]
    (rejection,) = records[1].rejected
    assert rejection.client == "west"
    assert rejection.reason in ("it did not answer within 40 seconds", "it went offline")
