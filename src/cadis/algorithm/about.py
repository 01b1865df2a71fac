"""Facts about a part of an algorithm: its paper, the data that it sends, its state."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """The publication that proposed a method or another part.

    Attributes:
        title: title of the paper.
        authors: full names, separated by commas, with the family name last.
        venue: short name of the conference or journal, or "arXiv".
        year: year of publication.
        link: web address of the paper, at arXiv or with its DOI.

    Example:
        >>> from cadis.algorithm import Paper
        >>> Paper(
        ...     title="Federated Optimization in Heterogeneous Networks",
        ...     authors="Tian Li, Anit Kumar Sahu, Manzil Zaheer, Maziar Sanjabi, "
        ...     "Ameet Talwalkar, Virginia Smith",
        ...     venue="MLSys",
        ...     year=2020,
        ...     link="https://arxiv.org/abs/1812.06127",
        ... ).citation
        'Li et al., MLSys 2020'
    """

    title: str
    authors: str
    venue: str
    year: int
    link: str

    @property
    def citation(self) -> str:
        """Short reference, such as "Li et al., MLSys 2020"."""
        names = [author.split()[-1] for author in self.authors.split(", ")]
        authors = " and ".join(names) if len(names) < 3 else f"{names[0]} et al."
        return f"{authors}, {self.venue} {self.year}"


FEDAVGM_PAPER = Paper(
    title="Measuring the Effects of Non-Identical Data Distribution for Federated Visual "
    "Classification",
    authors="Tzu-Ming Harry Hsu, Hang Qi, Matthew Brown",
    venue="arXiv",
    year=2019,
    link="https://arxiv.org/abs/1909.06335",
)
FEDOPT_PAPER = Paper(
    title="Adaptive Federated Optimization",
    authors="Sashank Reddi, Zachary Charles, Manzil Zaheer, Zachary Garrett, Keith Rush, "
    "Jakub Konečný, Sanjiv Kumar, H. Brendan McMahan",
    venue="ICLR",
    year=2021,
    link="https://arxiv.org/abs/2003.00295",
)
"""The papers here are used by a method and a server optimizer, which do not import each other."""


@dataclass(frozen=True)
class About:
    """Facts about a part, as ``cadis methods`` and the documentation show them.

    Attributes:
        topic: heading under which the part is listed, such as "drift correction".
        paper: publication that proposed the part, or None.
        sends: data that a client sends besides the model and the number of samples.
        client_state: state that a client keeps between rounds.
        server_state: state that the server keeps between rounds, besides one model.
        flower: "yes", or the reason why the part does not run on Flower.
        batch_norm: "yes", or a restriction for models with batch normalization.
    """

    topic: str = "your own"
    paper: Paper | None = None
    sends: str = "nothing"
    client_state: str = "nothing"
    server_state: str = "nothing"
    flower: str = "yes"
    batch_norm: str = "yes"
