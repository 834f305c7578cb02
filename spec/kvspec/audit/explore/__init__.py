"""Every state of a small model of the reference, breadth first: what `kvspec explore` goes through, checks, writes and replays.

`models` has the managers, `alphabet` the operations that are tried in a state, `expanding` what a process does with some states,
`search` the breadth-first search over all processes, `writing` scenarios of what was found.
"""
