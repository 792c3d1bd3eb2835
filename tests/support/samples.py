"""Real input for the main job: bodies as the peer encodes them, and of the kinds that the public fixtures have."""

import json
import os
from pathlib import Path

from babelqueue import EnvelopeCodec

from .bodies import Maker

_ENVELOPE = {
    "job": "urn:babel:orders:created",
    "trace_id": "0d1f9a52-6c1b-4f6e-9d62-5f1f3c3a4b10",
    "data": {"order_id": 77, "items": [{"sku": "tea", "qty": 2}]},
    "meta": {
        "id": "6a1f0a3c-3f0e-4c58-8f4e-0a5d5b1f2c11",
        "queue": "orders",
        "lang": "go",
        "schema_version": 1,
        "created_at": 1749132727000,
    },
    "attempts": 0,
}


def _variant(number, **changes):
    """The envelope with an id of its own."""
    envelope = json.loads(json.dumps(_ENVELOPE))
    envelope["meta"]["id"] = envelope["meta"]["id"][:-2] + f"{number:02}"
    for name, value in changes.items():
        envelope[name] = value if name != "meta" else {**envelope["meta"], **value}
    return envelope


def fixtures():
    """(name, bytes, verdict): one of each kind of public fixture, written here, some as people store them: indented."""
    def alias(number):
        return {"urn": _ENVELOPE["job"], **{k: v for k, v in _variant(number).items() if k != "job"}}

    def mixed(number):
        data = {"title": "Crème brûlée — 東京 ☕", "n": 7, "ratio": 0.5, "big": 18446744073709551615, "on": True, "no": None}
        return _variant(number, data=data)

    future = _variant(8, meta={"schema_version": 2})
    nameless = {k: v for k, v in _variant(9).items() if k != "job"}
    dead = _variant(
        5,
        attempts=3,
        dead_letter={
            "reason": "failed",
            "error": "Card declined",
            "exception": "App\\Exceptions\\Declined",
            "failed_at": 1749132730000,
            "original_queue": "orders",
            "attempts": 3,
            "lang": "php",
        },
    )
    def indented(envelope):
        return json.dumps(envelope, ensure_ascii=False, indent=2).encode() + b"\n"

    def compact(envelope):
        return json.dumps(envelope, ensure_ascii=False, separators=(",", ":")).encode()

    return [
        ("created", indented(_variant(1)), "ok"),
        ("created, compact", compact(_variant(2)), "ok"),
        ("alias", indented(alias(3)), "ok"),
        ("alias, compact", compact(alias(4)), "ok"),
        ("dead-lettered", indented(dead), "ok"),
        ("unicode and numbers", indented(mixed(6)), "ok"),
        ("unicode and numbers, compact", compact(mixed(7)), "ok"),
        ("unknown schema version", indented(future), "nonconformant"),
        ("no identity", indented(nameless), "poison/identity"),
        # Numbers and spellings that a re-encoding would change (cJSON#151, contract 1).
        ("kept bytes", b'{"job":"urn:x","trace_id":"t","data":{"n":1.0,"big":1491926160718000000,"a":1,"a":2},'
         b'"big":1e400,"meta":{"id":"kept","queue":"orders","lang":"c","schema_version":1,"created_at":1},"attempts":0}', "ok"),
    ]  # fmt: skip


def public_fixtures():
    """The published fixtures themselves, where BQ_CONFORMANCE_DIR says they are."""
    where = os.environ.get("BQ_CONFORMANCE_DIR")
    return sorted((Path(where) / "fixtures").glob("*.json")) if where else []


def encoded(count, seed=11):
    """Bodies of the peer's encode, each with an id of its own, attempts 0 and no dead_letter."""
    maker, bodies = Maker(seed), []
    while len(bodies) < count:
        envelope = maker.envelope()
        envelope.pop("dead_letter", None)
        envelope["attempts"] = 0
        envelope["meta"]["queue"] = "orders"
        bodies.append(EnvelopeCodec.encode(envelope).encode("utf-8"))
    return bodies
