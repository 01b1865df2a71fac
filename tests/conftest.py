"""The same on every machine: examples, however slow it is, and threads, as the engine has them."""

import hypothesis
import torch

torch.set_num_threads(1)

hypothesis.settings.register_profile("project", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.load_profile("project")
