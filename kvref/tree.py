"""The prefix tree: matching, entering, and what happens when a page is dropped (R2.6, R3.1, R10.3, R13.3)."""

from __future__ import annotations

from collections.abc import Iterator

from kvref.maps import Map
from kvref.order import join
from kvref.pages import delete, last_work, let_go_stale
from kvref.policies.match import inside_a_block
from kvref.policies.on_drop import alone
from kvref.state import Key, Node, Page, Request, State, fresh, put_page, stale, status
from kvref.values import memoised, replace
from kvref.why import Shorter
from kvspec.config import Level
from kvspec.observation import PageStatus, Removed, Stored, TreeEvent
from kvspec.tokens import Token

Match = tuple[tuple[int, ...], int]
"""The tree blocks of a match, and the tokens that it covers."""


def children(state: State, parent: int | None) -> tuple[Node, ...]:
    """The children of a tree block, older first."""
    return tuple(families(state.nodes).get(parent, ()))


@memoised
def families(nodes: Map[int, Node]) -> dict[int | None, list[Node]]:
    """The children of every tree block that has some, older first; those at the root under None."""
    found: dict[int | None, list[Node]] = {}
    for node in nodes.values():  # the state has them in order of age
        found.setdefault(node.parent, []).append(node)
    return found


def child(state: State, parent: int | None, tokens: tuple[Token, ...]) -> Node | None:
    """The child that holds exactly these tokens, with the same keys (R2.7)."""
    return next((n for n in children(state, parent) if n.tokens == tokens), None)


def prefix(state: State, node: int | None) -> tuple[Token, ...]:
    """All tokens from the root to the end of a tree block."""
    return () if node is None else state.nodes[node].prefix


def page_at(state: State, node: int, group: int) -> Page | None:
    """The page of a group in a tree block."""
    return in_tree(state.pages).get((node, group))


@memoised
def in_tree(pages: Map[int, Page]) -> dict[tuple[int, int], Page]:
    """The page of each tree block and group that has one; of several (policy ``dedupe``) the one that entered first.

    R14.3: of several locations the backing, or else the oldest copy.
    """
    found: dict[tuple[int, int], Page] = {}
    for p in pages.values():
        first = found.get((p.node, p.group)) if p.node is not None else None
        if p.node is not None and (first is None or (p.entered, not p.backing) < (first.entered, not first.backing)):
            found[p.node, p.group] = p
    return found


def below(state: State, node: int) -> tuple[int, ...]:
    """A tree block and all below it, parents first."""
    found = []
    ahead = [node]
    while ahead:
        found.append(ahead.pop())
        ahead += [child.id for child in reversed(children(state, found[-1]))]
    return tuple(found)


def common(a: tuple[Token, ...], b: tuple[Token, ...]) -> int:
    """The length of the common beginning: tokens with the same keys (R2.7)."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def match(state: State, tokens: tuple[Token, ...]) -> Match:
    """R3.1: the longest prefix at which every group has a page for every block that is not stale at that length.

    Whole blocks first, then one partial match, with the child that is chosen by tokens alone; if the match with it lacks a page,
    whole blocks, longest first.
    """
    return next(usable(state, tokens))


def usable(state: State, tokens: tuple[Token, ...]) -> Iterator[Match]:
    """R3.1: the matches that lack no page, the longest first; the empty match at the end."""
    return (m for m in matches(state, tokens) if missing(state, m) is None)


def matched_pages(state: State, m: Match) -> dict[Key, int]:
    """R3.1: the pages that a match holds, by number: those of blocks that are not stale at its length."""
    nodes, length = m
    pages: dict[Key, int] = {}
    for g in state.layout.groups:
        # R1.3: of an SSM group the last block's state is held, as block 0.
        state_of = {0: nodes[-1]} if nodes else {}
        blocks = state_of if g.ssm else dict(enumerate(nodes))
        for block, node in blocks.items():
            page = page_at(state, node, g.index)
            if page is not None and not state.layout.stale(g.index, block, length):
                pages[g.index, block, 0] = page.id
    return pages


def matches(state: State, tokens: tuple[Token, ...]) -> list[Match]:
    """R3.1: what could be matched by tokens alone, the longest first; the empty match at the end."""
    tpb = state.layout.tpb
    path: list[int] = []
    while node := child(state, path[-1] if path else None, tokens[len(path) * tpb : (len(path) + 1) * tpb]):
        if len(node.tokens) < tpb:
            break
        path.append(node.id)
    ends = [n for n in range(len(path), -1, -1) if n == 0 or not state.nodes[path[n - 1]].gone]
    candidates: list[Match] = [(tuple(path[:n]), n * tpb) for n in ends]
    rest = tokens[len(path) * tpb :]
    partial = [n for n in children(state, path[-1] if path else None) if common(n.tokens, rest) and not n.gone]
    if partial and inside_a_block(state):
        # The longest common beginning; a full block before a partial one; then the older.
        best = min(partial, key=lambda n: (-common(n.tokens, rest), len(n.tokens) < tpb, n.id))
        candidates.insert(0, ((*path, best.id), len(path) * tpb + common(best.tokens, rest)))
    return candidates


def missing(state: State, m: Match) -> tuple[int, int] | None:
    """R3.1: the first group and block of which a match needs a page that is not there; ``None`` if it lacks none.

    R1.3: an SSM group needs one at the last matched block alone. It is the state after all tokens of that block, so a match that
    ends inside a block is none.
    """
    nodes, length = m
    for g in state.layout.groups:
        if g.ssm:
            if nodes and not (covers(state, m) and page_at(state, nodes[-1], g.index)):
                return g.index, len(nodes) - 1
            continue
        for block, node in enumerate(nodes):
            if not state.layout.stale(g.index, block, length) and page_at(state, node, g.index) is None:
                return g.index, block
    return None


def shorter(state: State, tokens: tuple[Token, ...], m: Match) -> Shorter:
    """Why the match of ``tokens`` is not longer than ``m``: what the longest by tokens lacks, or where the tree ends."""
    longest = matches(state, tokens)[0]
    lack = missing(state, longest)
    if lack is None:
        return Shorter(m[1], len(tokens), m[1], token=tokens[m[1]])
    group = state.layout.groups[lack[0]]
    return Shorter(m[1], len(tokens), longest[1], group.name, lack[1], group.ssm and not covers(state, longest))


def covers(state: State, m: Match) -> bool:
    """Whether a match covers all tokens of its last block."""
    nodes, length = m
    return not nodes or length == len(prefix(state, nodes[-1]))


def add_node(state: State, parent: int | None, tokens: tuple[Token, ...]) -> tuple[State, int]:
    """A new tree block (R13.3: stored), or one that had left the tree alone."""
    node = child(state, parent, tokens)
    if node is None:
        state, nid = fresh(state)
        node = Node(nid, parent, tokens, prefix(state, parent) + tokens)
    node, nid = replace(node, gone=False), node.id
    state = replace(state, nodes=state.nodes.set(nid, node))
    return emit(state, Stored(prefix(state, nid))), nid


def emit(state: State, event: TreeEvent) -> State:
    """R13.3: an event, after those before it."""
    return replace(state, trace=replace(state.trace, events=(*state.trace.events, event)))


def enter(state: State, r: Request, page: Page, node: int) -> State:
    """R2.1: a page turns committed where it is. R6.4: the work so far on the request's stream joins its readiness.

    R14.7: on the GPU it is the request's copy from then on, on a colder level the backing.
    """
    state, move = fresh(state)
    page = replace(page, node=node, ready=join(page.ready, last_work(state, r)), move=move, entered=move)
    if state.layout.copied(page.group):
        page = replace(page, identity=page.id, copy_of=r.name if page.level is Level.GPU else None)
    return put_page(state, page)


def doomed(state: State, page: Page, gone: frozenset[int] = frozenset()) -> tuple[tuple[int, ...], tuple[Page, ...]]:
    """R10.3: the tree blocks and the pages that go with a droppable page when the pages ``gone`` have left before it."""
    assert page.node is not None  # only the tree keeps a droppable page (R2.2)
    if alone(state, page) or others(state, page, gone):
        return (), (page,)
    nodes = below(state, page.node)
    pages = [p for n in nodes for p in sorted(state.pages.values(), key=lambda p: p.group) if p.node == n and p.id != page.id]
    return nodes, (page, *(p for p in pages if p.id not in gone and status(state, p) is PageStatus.DROPPABLE))


def others(state: State, page: Page, gone: frozenset[int] = frozenset()) -> bool:
    """Whether the tree block of a page has others when the pages ``gone`` have left it."""
    return any(p.node == page.node and p.id != page.id and p.id not in gone for p in state.pages.values())


def kept_for(state: State, nodes: tuple[int, ...]) -> tuple[Page, ...]:
    """R3.7: the stale pages that requests keep to commit them below these tree blocks: they are released when the blocks go."""
    return tuple(
        state.pages[pid]
        for r in state.requests.values()
        if any(node in nodes for node in r.path)
        for key, pid in r.pages.items()
        if stale(state, r, key) and state.pages[pid].node is None
    )


def drop(state: State, page: Page) -> State:
    """R10.3: drop a page. A tree block without pages goes with all below it; what a request keeps there becomes its own.

    R3.7: a request whose path goes can commit no more, and lets go of the stale pages that it kept for that.
    """
    nodes, pages = doomed(state, page)
    if not nodes and not others(state, page):  # policy on_drop: what is below the block stays
        assert page.node is not None
        state = emit(state, Removed(prefix(state, page.node)))
        state = replace(state, nodes=state.nodes.set(page.node, replace(state.nodes[page.node], gone=True)))
    for node in nodes:
        state = state if state.nodes[node].gone else emit(state, Removed(prefix(state, node)))
    for p in pages:
        state = count(state, p.group, drop_pages=1)
    state = delete(state, *pages)
    for p in state.pages.values():
        if p.node in nodes:
            state = put_page(state, replace(p, node=None))
    state = replace(state, nodes=state.nodes.without(*nodes))
    for r in sorted(state.requests.values(), key=lambda r: r.uid):
        if any(node in nodes for node in r.path):
            state = let_go_stale(state, r)
    return state


def count(state: State, group: int, **more: int) -> State:
    """R13.1: add to the counters of a group."""
    name = state.layout.groups[group].name
    old = state.counters.groups[name]
    new = replace(old, **{field: getattr(old, field) + n for field, n in more.items()})
    return replace(state, counters=replace(state.counters, groups=Map({**state.counters.groups, name: new})))
