"""Local training on a client's data, and evaluation of models."""

from cadis.training.augmentation import AUGMENTATIONS, check_augmentations
from cadis.training.evaluation import (
    Evaluation,
    check_labels,
    check_model,
    compute_accuracies,
    compute_model_outputs,
    evaluate,
    find_head_and_outputs,
    forward_in_batches,
)
from cadis.training.fast.stack_trial import can_stack, passes_stack_trial
from cadis.training.fast.stacked import split_into_stacks, train_clients_stacked
from cadis.training.fast.stacked_model import StackedModel
from cadis.training.local import (
    Client,
    LocalSettings,
    apply_client_transforms,
    choose_device,
    compute_batch_sizes,
    train_client,
)
