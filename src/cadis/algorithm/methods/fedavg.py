"""FedAvg: the mean of the local models, weighted by numbers of samples.

H. Brendan McMahan, Eider Moore, Daniel Ramage, Seth Hampson, Blaise Agüera y Arcas:
Communication-Efficient Learning of Deep Networks from Decentralized Data. AISTATS 2017.
https://arxiv.org/abs/1602.05629
"""

from dataclasses import dataclass
from typing import ClassVar

from cadis.algorithm.about import About, Paper
from cadis.algorithm.base_method import BaseMethod


@dataclass(frozen=True)
class FedAvg(BaseMethod):
    """Plain local training, and the mean of the models by numbers of samples.

    ``w <- sum_i (n_i / N) * w_i`` over the participants, with N = sum_i n_i.

    Use it as the baseline, and if clients have similar data. All other methods change parts of it.
    """

    name: ClassVar[str] = "fedavg"
    about: ClassVar[About] = About(
        topic="reference",
        paper=Paper(
            title="Communication-Efficient Learning of Deep Networks from Decentralized Data",
            authors="H. Brendan McMahan, Eider Moore, Daniel Ramage, Seth Hampson, "
            "Blaise Agüera y Arcas",
            venue="AISTATS",
            year=2017,
            link="https://arxiv.org/abs/1602.05629",
        ),
    )
