"""``python -m spec.cli``: the command line where the package is not installed."""

from spec.cli.main import main

main()
