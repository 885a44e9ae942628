"""Cycles in a directed graph of transactions: Tarjan's strongly connected components, without recursion."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Set

Graph = Mapping[str, Set[str]]
"""By node: where its edges go."""


def components(graph: Graph) -> Iterator[list[str]]:
    """The strongly connected components of more than one node. Linear in nodes and edges."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in graph:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(sorted(graph[root])))]
        while work:
            node, edges = work[-1]
            for other in edges:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(graph.get(other, ())))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    found = []
                    while not found or found[-1] != node:
                        found.append(stack.pop())
                        on_stack.discard(found[-1])
                    if len(found) > 1:
                        yield found


def shortest_cycle(graph: Graph, component: list[str]) -> list[str]:
    """A shortest cycle through the first node of a component, in the order of its edges."""
    start, members = component[-1], set(component)
    before: dict[str, str] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for other in sorted(graph.get(node, ())):
            if other == start:
                cycle = [node]
                while cycle[-1] != start:
                    cycle.append(before[cycle[-1]])
                return cycle[::-1]
            if other in members and other not in before:
                before[other] = node
                queue.append(other)
    return []
