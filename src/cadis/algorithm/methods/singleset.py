"""SingleSet: centralised SGD on the pooled data, the line that federations are measured by."""

from dataclasses import dataclass
from typing import ClassVar

from cadis.algorithm.about import About
from cadis.algorithm.base_method import BaseMethod


@dataclass(frozen=True)
class SingleSet(BaseMethod):
    """A federation of one client who holds everybody's data; its update is the new model."""

    name: ClassVar[str] = "singleset"
    pools_clients: ClassVar[bool] = True
    about: ClassVar[About] = About(
        kind="reference", flower="no: it needs everybody's data in one place"
    )
