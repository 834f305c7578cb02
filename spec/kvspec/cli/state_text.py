"""A state as text, to be printed."""

from __future__ import annotations

from kvspec.cli.state_lines import state_lines
from kvspec.config import ManagerConfig
from kvspec.observation import Observation


def show(manager: ManagerConfig, now: Observation) -> str:
    """What ``kvspec show`` prints of a state: a line for each request, page, pool group, batch and published row.

    ``now``: what a system's ``observe`` returns, or ``kvref.observe`` of a state. Blocks are written G (GPU), H (host), D (disk)
    and . (no page); at the end of a page's line stands why it was not moved, where that is a question.
    """
    return "\n".join(f"{line.text}  {line.why}" if line.why else line.text for line in state_lines(manager, now))
