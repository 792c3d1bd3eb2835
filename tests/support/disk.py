"""What a disk holds after a power cut, from the trace that tests/tools/disk_shim.c wrote.

A sync makes a file's content and its directory entry durable; a sync of the directory makes creations, removals and
renames durable. Everything since then may have reached the disk, or not, or in parts: an image is drawn for each case.
"""

import struct
from dataclasses import dataclass, field
from typing import Dict, List, NamedTuple, Optional

SECTOR = 512


class Op(NamedTuple):
    kind: str  # C create, W write, T truncate, U unlink, R rename, S sync, D sync of the directory
    name: str
    number: int
    data: bytes


def read_trace(path):
    data, at, ops = path.read_bytes(), 0, []
    while at < len(data):
        kind, name_len, number, data_len = struct.unpack_from("<cHQI", data, at)
        at += 15
        name = data[at : at + name_len].decode()
        at += name_len
        ops.append(Op(kind.decode(), name, number, data[at : at + data_len]))
        at += data_len
    return ops


def _apply(content, op):
    """`content` (bytearray) after a write or a truncation."""
    if op.kind == "T":
        if op.number <= len(content):
            del content[op.number :]
        else:
            content.extend(bytes(op.number - len(content)))
        return
    end = op.number + len(op.data)
    if end > len(content):
        content.extend(bytes(end - len(content)))
    content[op.number : end] = op.data


@dataclass
class _File:
    durable: bytearray = field(default_factory=bytearray)
    pending: List[Op] = field(default_factory=list)


class Disk:
    """The state of the directory while a trace is played back."""

    def __init__(self, ignored=()):
        self.ignored = ignored
        self.now: Dict[str, _File] = {}  # what a process sees
        self.entries: Dict[str, _File] = {}  # what the directory on the disk surely says

    def play(self, op):
        if op.name.endswith(self.ignored):
            return
        if op.kind == "C":
            self.now[op.name] = _File()
        elif op.kind in "WT":
            self.now.setdefault(op.name, _File()).pending.append(op)
        elif op.kind == "S":
            file = self.now.get(op.name)
            if file:
                for change in file.pending:
                    _apply(file.durable, change)
                file.pending.clear()
                self.entries[op.name] = file
        elif op.kind == "U":
            self.now.pop(op.name, None)
        elif op.kind == "R":
            self.now[op.data.decode()] = self.now.pop(op.name)
        elif op.kind == "D":
            self.entries = dict(self.now)
        else:
            raise AssertionError(f"unknown operation {op.kind}")

    def image(self, how, rng=None):
        """{name: bytes} after the power is cut now. how: "kept" (everything arrived), "lost" (only what was synced),
        "torn" (each sector of each write, and each change of the directory, by a coin)."""
        if how == "kept":
            entries = self.now
        elif how == "lost":
            entries = self.entries
        else:
            entries = {}
            for name in sorted(set(self.now) | set(self.entries)):
                new, old = self.now.get(name), self.entries.get(name)
                chosen = new if rng.random() < 0.5 else old
                if chosen is not None:
                    entries[name] = chosen
        return {name: self._content(file, how, rng) for name, file in entries.items()}

    @staticmethod
    def _content(file, how, rng):
        content = bytearray(file.durable)
        if how == "lost":
            return bytes(content)
        for op in file.pending:
            if how == "kept":
                _apply(content, op)
            elif op.kind == "T":
                if rng.random() < 0.5:
                    _apply(content, op)
            else:
                for sector in _sectors(op):
                    if rng.random() < 0.5:
                        _apply(content, sector)
        return bytes(content)


def _sectors(op):
    """A write, cut where the disk may tear it."""
    at, data = op.number, op.data
    while data:
        step = SECTOR - at % SECTOR
        yield Op("W", op.name, at, data[:step])
        at, data = at + step, data[step:]


def write_image(directory, image):
    for name, content in image.items():
        (directory / name).write_bytes(content)


def environment(shim, directory, **settings):
    """The environment that puts a program on such a disk: trace=PATH, kill=N, full="N:M", full_while=PATH,
    bad_sync="N:M"."""
    env = {"LD_PRELOAD": str(shim), "BQ_DISK_DIR": str(directory.resolve())}
    for name, value in settings.items():
        if value is not None:
            env["BQ_DISK_" + name.upper()] = str(value)
    return env
