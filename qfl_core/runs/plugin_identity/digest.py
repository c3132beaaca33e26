"""A digest that grows while values are read, and the place where the reading is: a refusal names it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from qfl_core.base.errors import ConfigError


class Digest:
    """The SHA-256 of all pieces that were written. An object is written as the digest of its own content.

    So it does not matter whether two equal values are one object or two, which differs between processes: a copy that
    another process gets has attributes of its own, where the original shared them with a global.
    """

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._open: dict[object, int] = {}  # what is being read, with its depth
        self._read: dict[object, tuple[str, object]] = {}  # digests; the objects stay, because addresses are the keys
        self._trail: list[str] = []

    def hexdigest(self) -> str:
        """Return the digest of what was written so far."""
        return self._sha.hexdigest()

    def write(self, what: str, content: str | bytes = b"") -> None:
        """Add a piece to the digest. Its length is in front, so two pieces never read like one."""
        content = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        self._sha.update(f"{what} {len(content)}:".encode())
        self._sha.update(content)

    def write_object(self, key: object, value: object, read: Callable[[], None]) -> None:
        """Write the digest of what ``read`` writes, once per object. A cycle ends in the distance to its beginning."""
        if key in self._open:
            self.write("cycle", str(len(self._open) - self._open[key]))
            return
        if key not in self._read:
            around, self._sha = self._sha, hashlib.sha256()
            self._open[key] = len(self._open)
            read()
            del self._open[key]
            self._read[key] = (self._sha.hexdigest(), value)
            self._sha = around
        self.write("object", self._read[key][0])

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
