"""Faster implementations of the training loop: closed-form, in-place and stacked gradients.

``closed_forms`` has gradients of penalties, and ``in_place`` updates large linear layers without
storing their gradient. ``stacked`` trains several clients at once: it does by hand what
``torch.func.vmap`` over ``torch.func.functional_call`` would do. The results are equal to those of
the plain loop up to rounding.
"""
