"""The reference: the rules of ``docs/rules.md`` as pure functions over immutable state.

Every operation is a function ``(state, op) -> (state, value)`` that raises `Failure` for an error of a known kind;
`kvref.step` turns that into the outcome. Nothing is kept in step with anything: owners, status, eligible counts, dirty
rows, tables and snapshots are computed from the state, as the rules define them.

The names in ``__all__`` may be relied on; docs/python.md shows them.
"""

from kvref.observe import observe
from kvref.state import State
from kvref.step import initial, step
from kvref.system import Reference

__all__ = ["Reference", "State", "initial", "observe", "step"]
