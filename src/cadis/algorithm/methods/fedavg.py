"""FedAvg: the mean of the local models, weighted by numbers of samples.

McMahan et al., AISTATS 2017, https://arxiv.org/abs/1602.05629
"""

from dataclasses import dataclass
from typing import ClassVar

from cadis.algorithm.about import About, Paper
from cadis.algorithm.base_method import BaseMethod


@dataclass(frozen=True)
class FedAvg(BaseMethod):
    """Plain local training, and the mean of the local models weighted by numbers of samples.

    Use it as the baseline, and if clients have similar data. All other methods change parts of it.

    The new global model is ``w <- sum_i (n_i / N) * w_i`` over the participants i, where n_i is the
    number of samples of client i, and N = sum_i n_i.
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
