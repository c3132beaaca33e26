"""Collect the pieces of a value and of all that it leads to, and refuse what cannot be identified."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from qfl_core.base.errors import ConfigError


@dataclass
class _Node:
    """One value: the pieces that are its own, and the numbers of the values that it leads to."""

    ordered: bool = True
    children: list[int] = field(default_factory=list)
    own: Any = field(default_factory=hashlib.sha256)

    def label(self, labels: list[bytes]) -> bytes:
        """Return the digest of the own pieces and of the children's labels; of a set, the order does not count."""
        children = [labels[child] for child in self.children]
        return hashlib.sha256(self.own.digest() + b"".join(children if self.ordered else sorted(children))).digest()


class Digest:
    """The SHA-256 of all pieces that were written, by value.

    Values may lead to each other in circles, and one object may be met in many places. Another process has copies of
    some of them: a copied attribute is no longer the object that a global holds. So the digest depends on what can be
    seen by following the values from the first one, and not on which of them are one object. Every value is a node. Its
    label, at first the digest of its own pieces, is renewed from its children's labels until no more values can be told
    apart. This is the refinement of partitions that finds equal states of an automaton.
    """

    def __init__(self) -> None:
        self._node = _Node()  # the one that is being read
        self._nodes = [self._node]
        self._numbers: dict[object, tuple[int, object]] = {}  # the objects stay, because addresses are the keys
        self._trail: list[str] = []

    def hexdigest(self) -> str:
        """Return the digest, as hexadecimal text."""
        told_apart, labels = 0, [node.own.digest() for node in self._nodes]
        finer = [node.label(labels) for node in self._nodes]
        while len(set(labels)) > told_apart:
            told_apart, labels = len(set(labels)), finer
            finer = [node.label(labels) for node in self._nodes]
        # Every label with the labels of its children: equal texts mean equal graphs, wherever the refinement ended.
        graph = sorted({label + then for label, then in zip(labels, finer, strict=True)})
        return hashlib.sha256(labels[0] + b"".join(graph)).hexdigest()

    def write(self, what: str, content: bytes | str = b"") -> None:
        """Write one piece: what it is, and its content, which begins with its length."""
        content = content.encode() if isinstance(content, str) else content
        self._node.own.update(f"{what} {len(content)}:".encode())
        self._node.own.update(content)

    def write_object(self, key: object, value: object, read: Callable[[], None]) -> None:
        """Write a value that ``read`` reads into a node of its own; it is read once, wherever it is met again."""
        self.write("object")
        if key in self._numbers:
            self._node.children.append(self._numbers[key][0])
            return
        self._numbers[key] = (len(self._nodes), value)
        with self._child():
            read()

    def write_set(self, members: Iterable[Callable[[], None]]) -> None:
        """Write what each of these reads, whose order does not count, because it differs between processes."""
        with self._child(ordered=False):
            self.write("set")
            for read in members:
                with self._child():
                    read()

    @contextmanager
    def _child(self, ordered: bool = True) -> Iterator[None]:
        """Write into a new node, a child of the one that is being read."""
        parent = self._node
        parent.children.append(len(self._nodes))
        self._node = _Node(ordered)
        self._nodes.append(self._node)
        yield
        self._node = parent

    @contextmanager
    def inside(self, place: str) -> Iterator[None]:
        """Name the place that is being read inside the ``with`` block."""
        self._trail.append(place)
        yield
        self._trail.pop()

    def refusal(self, what: str, why: str) -> ConfigError:
        """Return the error that says what cannot be identified, where it was found, and why."""
        place = f" ({', '.join(self._trail)})" if self._trail else ""
        return ConfigError(f"a plugin cannot be identified: {what}{place}, because {why}")
