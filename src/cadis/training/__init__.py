"""Training a model on one client's data, and testing it."""

from cadis.training.augmentation import AUGMENTATIONS, check_augmented
from cadis.training.evaluation import (
    Evaluation,
    accuracies,
    check_fit,
    check_labels,
    evaluate,
    found_head,
    outputs_of,
    view_of,
)
from cadis.training.fast.stack_trial import may_stack, stacks_in_trial
from cadis.training.fast.stacked import dealt_into_stacks, replies_together
from cadis.training.fast.stacked_model import StackedModel
from cadis.training.local import (
    Client,
    LocalSettings,
    batch_sizes,
    choose_device,
    reply_to,
    sent_by,
)
