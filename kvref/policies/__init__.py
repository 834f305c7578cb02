"""Where good managers differ (R16.1): each module says what the values of one policy mean, and is asked at one place."""

from __future__ import annotations

from kvspec.policies import Offer, checked_offer

OFFERED: Offer = checked_offer(
    {
        "match": ("token", "block"),
        "partial_blocks": ("kept", "none"),
        "copy_at": ("resume", "create"),
        "dedupe": ("rebase", "keep_both"),
        "held": ("evictable", "pinned"),
        "recency": ("release", "access", "let_go"),
        "match_renews": (False, True),
        "release_order": ("by_block", "by_group"),
        "evict_unit": ("page", "node"),
        "on_drop": ("subtree", "page_alone"),
        "on_drop_windowed": ("subtree", "page_alone"),
        "room": ("counts", "not_counted"),
        "failed_operation": ("evicts_nothing", "may_have_evicted"),
        "clear_event": ("each", "one"),
        "suspend": ("hold", "recompute"),
        "versions": ("exactly", "at_least"),  # asks no more of it: its versions are the least
    }
)
"""The values that the reference can be told to follow."""
