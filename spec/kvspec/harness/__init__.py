"""The harness: replays a scenario through two systems and compares everything that can be seen of them.

``replay`` is the way in; ``systems`` finds what to replay through, ``report`` shows what it found.
"""
