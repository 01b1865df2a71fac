"""What a part is, for whoever looks for it by its paper's name: ``cadis methods`` lists these."""

from dataclasses import dataclass


@dataclass(frozen=True)
class About:
    """Facts about a part of ours that its code does not tell at a glance.

    Attributes:
        kind: what it is about, such as "drift correction".
        paper: who proposed it, and when.
        sends: what travels beyond a model and its number of samples.
        client_memory: what a client remembers from round to round.
        server_memory: what the server remembers, beyond one model.
        flower: "yes", or why it does not run on Flower.
        batch_norm: "yes", or what to know of models with batch norm.
    """

    kind: str = "your own"
    paper: str = ""
    sends: str = "nothing"
    client_memory: str = "nothing"
    server_memory: str = "nothing"
    flower: str = "yes"
    batch_norm: str = "yes"
