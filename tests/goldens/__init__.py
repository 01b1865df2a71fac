"""Golden hashes of results, to prove that a refactoring does not change them.

Run them by ``PYTHONPATH=tests python -m goldens`` or ``make goldens``. The cases use only names
that remain when modules are renamed: the command ``cadis``, the functions ``cadis.run``,
``cadis.compare`` and ``cadis.load``, the documented names of ``cadis.flower``, and the files of a
run folder. Hashes depend on the processor and on the version of torch, so they are not part of
``make test``.
"""
