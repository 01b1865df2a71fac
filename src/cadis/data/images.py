"""``images:FOLDER``: a user's folder of images as a dataset."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from cadis._io import Callbacks, to_printable
from cadis.data.dicom import check_dicom_extra, is_dicom
from cadis.data.holdout import hold_out_tenth_per_class
from cadis.data.image_cache import decode
from cadis.data.image_folder import ImageFile, ImageFolder, SkippedFiles, read_image_folder
from cadis.data.preprocessing import ImagePreprocessing
from cadis.data.samples import Dataset, Samples, Scaling, group_indices_by_client
from cadis.errors import CadisError

_IMAGENET = Scaling((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_MAX_FILES_LISTED = 10
_MAX_SUFFIXES_LISTED = 3


def load_images(
    folder: Path, size: int, cache: Path | None, callbacks: Callbacks, classes: Sequence[str] = ()
) -> Dataset:
    """Load the images of a folder, see :func:`read_image_folder`.

    Without a test set, a tenth of the images of each class is held out.

    Args:
        folder: folder of images.
        size: width and height in pixels to which images are resized.
        cache: folder of the cache of decoded images; None for no cache.
        callbacks: called with the progress and with warnings.
        classes: names of all classes, if other clients have classes that this folder lacks.
    """
    images = read_image_folder(folder)
    _report_skipped(images.skipped, callbacks)
    images = images.renumber_classes(classes, folder) if classes else images
    train, test = _split(images)
    files = [*train, *test]
    if any(is_dicom(file.path) for file in files):
        check_dicom_extra()
    decoded = decode([file.path for file in files], size, cache, callbacks, str(folder))
    _report_unreadable(files, decoded.errors, callbacks)
    _report_animated([files[index] for index in decoded.animated], callbacks)
    train, test = (
        [file for index, file in enumerate(part, start) if index not in decoded.errors]
        for part, start in ((train, 0), (test, len(train)))
    )
    _report_missing(images, train, test, callbacks)
    if not train or not test:
        raise CadisError(f"{folder} has too few images that can be read; add some.")
    pixels = torch.from_numpy(decoded.pixels).permute(0, 3, 1, 2)  # (n, 3, size, size)
    labels = torch.tensor([file.label for file in [*train, *test]])
    samples = Samples(pixels, labels, _IMAGENET)
    return Dataset(
        f"images:{folder}",
        samples.take(slice(0, len(train))),
        samples.take(slice(len(train), None)),
        images.classes,
        group_indices_by_client([file.client for file in train]),
        group_indices_by_client([file.client for file in test]),
        preprocessing=ImagePreprocessing(3, size, size, _IMAGENET),
    )


def _split(images: ImageFolder) -> tuple[list[ImageFile], list[ImageFile]]:
    """Return the training set and the test set; hold out a tenth if there is no test set."""
    if images.test:
        return images.train, images.test
    labels = [file.label for file in images.train]
    is_test = hold_out_tenth_per_class(labels, [file.client for file in images.train]).tolist()
    train = [file for file, test in zip(images.train, is_test, strict=True) if not test]
    return train, [file for file, test in zip(images.train, is_test, strict=True) if test]


def _report_missing(
    images: ImageFolder, train: list[ImageFile], test: list[ImageFile], callbacks: Callbacks
) -> None:
    """Report clients without readable training images and classes without test images."""
    clients = {file.client for file in train}
    for client in dict.fromkeys(file.client for file in images.train):
        if client not in clients:
            callbacks.say(f"Left out {client}: none of its training images can be read.")
    for label in sorted({file.label for file in train} - {file.label for file in test}):
        callbacks.say(f"The test set has no image of {images.classes[label]}; add some.")


def _report_skipped(skipped: SkippedFiles, callbacks: Callbacks) -> None:
    for link in skipped.links:
        callbacks.say(f"Skipped {to_printable(link)}: links to folders are not followed.")
    for folder in skipped.empty:
        callbacks.say(f"Left out {to_printable(folder)}: there is no image in it.")
    if files := skipped.others:
        callbacks.say(
            f"Skipped files that are not images: {len(files):,}, such as "
            f"{to_printable(files[0])}{_format_suffixes(files)}."
        )


def _format_suffixes(files: Sequence[Path]) -> str:
    """Return the file counts of the most frequent suffixes; "" if there is only one suffix."""
    counts = Counter(map(_get_suffix, files))
    if len(counts) == 1:
        return ""
    frequent = counts.most_common(_MAX_SUFFIXES_LISTED)
    texts = [f"{count:,} {to_printable(suffix)}" for suffix, count in frequent]
    if others := len(files) - sum(count for _, count in frequent):
        texts.append(f"{others:,} more")
    return f" ({', '.join(texts)})"


def _get_suffix(file: Path) -> str:
    """Return the suffix, with both parts of .nii.gz; the name of a file without a suffix."""
    suffixes = file.suffixes[-2:] if file.suffix.lower() == ".gz" else file.suffixes[-1:]
    return "".join(suffixes).lower() or file.name


def _report_unreadable(
    files: Sequence[ImageFile], errors: dict[int, str], callbacks: Callbacks
) -> None:
    for index in list(errors)[:_MAX_FILES_LISTED]:
        callbacks.say(f"Skipped {to_printable(files[index].path)}: {errors[index]}.")
    if len(errors) > _MAX_FILES_LISTED:
        more = len(errors) - _MAX_FILES_LISTED
        callbacks.say(f"Skipped {more} more images that cannot be read.")


def _report_animated(files: Sequence[ImageFile], callbacks: Callbacks) -> None:
    if files:
        subject = f"{len(files)} images have" if len(files) > 1 else "One image has"
        callbacks.say(
            f"{subject} several frames; only the first is used: "
            f"{', '.join(to_printable(file.path) for file in files[:_MAX_FILES_LISTED])}"
            f"{', ...' if len(files) > _MAX_FILES_LISTED else '.'}"
        )
