"""Looking into the file of the sqlite transport without the library: what survived, by SQLite's own account.

The one place of the suites that knows the schema (src/transport/sqlite/db.h).
"""

import json
import sqlite3
from contextlib import closing
from typing import NamedTuple

_SEQUENCE_BITS = 44


class Message(NamedTuple):
    queue: str
    id: str  # meta.id, None where the body has none
    attempts: int
    body: bytes
    leased: bool
    delayed: bool


def read(path):
    """Every message of the file. Fails when SQLite finds the file damaged, or the tables contradict each other."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "bq_message" not in tables:
            assert not tables, f"half a schema: {tables}"
            return []
        names = dict(db.execute("SELECT id, name FROM bq_queue"))
        ready = {id: timed for id, timed in db.execute("SELECT id, timed FROM bq_ready")}
        leased = {id for (id,) in db.execute("SELECT id FROM bq_lease")}
        assert not leased & set(ready), "a message is both ready and leased"
        messages = []
        for rowid, body in db.execute("SELECT id, body FROM bq_message ORDER BY id"):
            assert rowid in ready or rowid in leased, "a message that nobody would ever take"
            body = body.encode() if isinstance(body, str) else body
            envelope = _envelope(body)
            messages.append(
                Message(
                    names[rowid >> _SEQUENCE_BITS],
                    envelope["meta"].get("id") if isinstance(envelope.get("meta"), dict) else None,
                    envelope.get("attempts"),
                    body,
                    rowid in leased,
                    bool(ready.get(rowid)),
                )
            )
        assert len(messages) == len(ready) + len(leased), "ready or leased rows without a message"
        return messages


def leases(path):
    """When each lease ends, in milliseconds of the epoch, by row."""
    with closing(sqlite3.connect(path)) as db:
        return dict(db.execute("SELECT id, until FROM bq_lease"))


def _envelope(body):
    try:
        parsed = json.loads(body)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
