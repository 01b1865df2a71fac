"""How well scores rank what they are about: the area under the ROC curve."""

from math import isnan, nan
from statistics import fmean

import torch
from torch import Tensor


def roc_auc(scores: Tensor, truth: Tensor) -> float:
    """Return the area under the ROC curve; NaN if one of the classes is missing.

    It is the share of pairs in which a positive scores above a negative, ties counting half. By
    ranks (Mann-Whitney): (the sum of the positives' ranks - P (P + 1) / 2) / (P N).
    """
    from scipy.stats import rankdata  # noqa: PLC0415  # it takes a while to import

    ranks = torch.from_numpy(rankdata(scores.numpy()))  # (n,), from 1; ties share their mean
    positives = int(truth.sum())
    above = float(ranks[truth].sum()) - positives * (positives + 1) / 2
    pairs = positives * (len(truth) - positives)
    return above / pairs if pairs else nan


def one_against_rest(outputs: Tensor, labels: Tensor) -> float:
    """The mean over the classes of the area under the ROC curve of each against all others.

    A class that the test set does not have, or has alone, does not count. Outputs that are not
    numbers count as the most wrong ones.

    Args:
        outputs: of a model with an output for each class, (n, classes).
        labels: the truth, (n,).
    """
    chances = outputs.double().softmax(dim=1)
    truth = torch.nn.functional.one_hot(labels, outputs.shape[1]).bool()
    worst = torch.where(truth, -torch.inf, torch.inf).double()
    scores = torch.where(chances.isnan(), worst, chances)
    areas = [roc_auc(scores[:, label], truth[:, label]) for label in range(outputs.shape[1])]
    known = [area for area in areas if not isnan(area)]
    return fmean(known) if known else nan
