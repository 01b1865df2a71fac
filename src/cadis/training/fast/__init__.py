"""Faster implementations of the training loop: closed-form, in-place and stacked gradients.

``closed_forms`` has gradients of penalties. ``in_place`` updates large linear layers without
storing their gradients. ``stacked`` trains several clients at once; it computes the same as
``torch.func.vmap`` over ``torch.func.functional_call`` would. The results are equal to the results
of the plain loop, except for rounding.
"""
