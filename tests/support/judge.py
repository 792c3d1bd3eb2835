"""The other half of tests/tools/judge.c: what the contract's pure functions say of many bodies."""

import struct
import subprocess
from dataclasses import dataclass
from typing import Optional

from . import build

_ABSENT = 0xFFFFFFFF

#: The bits of BQ_DROPPED_* in their order.
DROPPED = ["/timestamp", "/meta/max_retries", "/meta/attempts", "/meta/source", "/meta/ts", "/urn"]

#: The rows of the binding table in their order.
BINDINGS = ["memory", "sqlite", "redis", "laravel", "bullmq", "rabbitmq", "sqs", "sb", "pulsar", "kafka", "artemis"]


@dataclass
class Block:
    """The dead_letter member of a record."""

    reason: str = "failed"
    error: Optional[str] = None
    exception: Optional[str] = None
    failed_at: int = 1749132730000
    original_queue: str = "orders"
    attempts: int = 3
    lang: str = "c"

    def as_dict(self, reason=None):
        return {
            "reason": reason or self.reason,
            "error": self.error,
            "exception": self.exception,
            "failed_at": self.failed_at,
            "original_queue": self.original_queue,
            "attempts": self.attempts,
            "lang": self.lang,
        }


@dataclass
class Judged:
    """What was said of one body. Members are bytes, None where absent or refused."""

    verdict: str
    reason: str
    urn: Optional[bytes]
    trace_id: Optional[bytes]
    id: Optional[bytes]
    queue: Optional[bytes]
    original_queue: Optional[bytes]
    attempts: int
    poison: dict
    poison_record: Optional[bytes]
    kafka_record: Optional[bytes]
    retry: Optional[bytes]
    record: Optional[bytes]
    redrive: Optional[bytes]
    dropped: list


@dataclass
class Made:
    status: str
    body: Optional[bytes]
    error: str


def _pack(kind, fields):
    out = [struct.pack("BB", ord(kind), len(fields))]
    for field in fields:
        if field is None:
            out.append(struct.pack("<I", _ABSENT))
            continue
        raw = field if isinstance(field, bytes) else str(field).encode()
        out.append(struct.pack("<I", len(raw)))
        out.append(raw)
    return b"".join(out)


def _unpack(data):
    records, at = [], 0
    while at < len(data):
        kind, count = struct.unpack_from("BB", data, at)
        at += 2
        fields = []
        for _ in range(count):
            (length,) = struct.unpack_from("<I", data, at)
            at += 4
            if length == _ABSENT:
                fields.append(None)
                continue
            fields.append(data[at : at + length])
            at += length
        records.append((chr(kind), fields))
    return records


def _run(requests, timeout):
    done = subprocess.run([build.tool("judge")], input=b"".join(requests), capture_output=True, timeout=timeout)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    records = _unpack(done.stdout)
    assert len(records) == len(requests)
    return records


def _judged(fields):
    digits = fields[8].decode()
    assert len(digits) == len(BINDINGS), "the binding table has other rows than this test knows"
    bits = int(fields[14])
    return Judged(
        verdict=fields[0].decode(),
        reason=fields[1].decode(),
        urn=fields[2],
        trace_id=fields[3],
        id=fields[4],
        queue=fields[5],
        original_queue=fields[6],
        attempts=int(fields[7]),
        poison={name: digit == "1" for name, digit in zip(BINDINGS, digits)},
        poison_record=fields[9],
        kafka_record=fields[10],
        retry=fields[11],
        record=fields[12],
        redrive=fields[13],
        dropped=[pointer for bit, pointer in enumerate(DROPPED) if bits & (1 << bit)],
    )


def judge(bodies, attempts, blocks, timeout=120):
    """Judges each of `bodies`, with the new count `attempts[i]` for its retry and `blocks[i]` for its records."""
    requests = [
        _pack("B", [body, count, b.reason, b.error, b.exception, b.failed_at, b.original_queue, b.attempts, b.lang])
        for body, count, b in zip(bodies, attempts, blocks)
    ]
    return [_judged(fields) for _, fields in _run(requests, timeout)]


def make(specs, timeout=120):
    """Makes an envelope of each of `specs`: dicts with urn, trace_id, data, queue, lang, id, created_at, meta."""
    names = ["urn", "trace_id", "data", "queue", "lang", "id", "created_at", "meta"]
    requests = [_pack("M", [spec.get(name) for name in names]) for spec in specs]
    return [
        Made(fields[0].decode(), fields[1], fields[2].decode(errors="replace"))
        for _, fields in _run(requests, timeout)
    ]
