"""``python -m cadis`` is the command ``cadis``."""

from cadis.cli import main

main()
