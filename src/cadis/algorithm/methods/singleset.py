"""SingleSet: centralized training on the pooled data of all clients."""

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from cadis.algorithm.about import About
from cadis.algorithm.base_method import BaseMethod


@dataclass(frozen=True)
class SingleSet(BaseMethod):
    """Centralized training: one client has the data of all clients.

    Use it as a reference: it shows the accuracy that is possible without federation. The paper of
    CADIS uses it in the same way.

    The trained model of this client becomes the global model.
    """

    name: ClassVar[str] = "singleset"
    pools_clients: ClassVar[bool] = True
    largest_share: ClassVar[float] = inf
    about: ClassVar[About] = About(
        topic="reference", flower="no: it needs the data of all clients in one process"
    )
