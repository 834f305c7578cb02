"""``python -m kvspec`` is the command ``kvspec``."""

from kvspec.cli.main import main

main()
