"""Where the project's packages are, for tests that start processes."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATHS = os.pathsep.join((str(ROOT / "spec"), str(ROOT)))
"""``PYTHONPATH`` of a process that takes the packages from here."""
