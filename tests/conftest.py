"""The same examples on every machine, however slow it is."""

import hypothesis

hypothesis.settings.register_profile("project", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.load_profile("project")
