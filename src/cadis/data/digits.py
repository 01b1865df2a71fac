"""The embedded dataset: scikit-learn's 1,797 handwritten digits of 8 x 8 pixels."""

import torch

from cadis.data.examples import Dataset, Examples


def digits() -> Dataset:
    """Four fifths for training, one fifth for testing, the same split every time."""
    # Only now: it takes as long to import as torch, and no other dataset needs it.
    from sklearn.datasets import load_digits  # noqa: PLC0415
    from sklearn.model_selection import train_test_split  # noqa: PLC0415

    bunch = load_digits()
    pixels = torch.tensor(bunch.images, dtype=torch.float32)[:, None] / 16  # (n, 1, 8, 8)
    labels = torch.tensor(bunch.target, dtype=torch.int64)
    train, test = train_test_split(
        torch.arange(len(labels)), test_size=0.2, stratify=labels, random_state=0
    )
    mean, deviation = pixels[train].mean(), pixels[train].std()
    examples = Examples((pixels - mean) / deviation, labels)
    names = tuple(map(str, bunch.target_names))
    return Dataset("digits", examples.take(train), examples.take(test), names)
