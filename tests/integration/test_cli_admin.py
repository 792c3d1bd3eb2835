"""`bq peek`, `queues`, `stats`, `redrive` and `purge` on SQLite."""

import json
import os
import pty
import select
import signal
import subprocess
import time

import pytest

from support import build, sqlitefile
from support.cli import environment
from support.pipes import Talk
from support.wait import until


def err(done):
    return done.err.decode()


def bodies(bq, queue):
    return [m.body for m in sqlitefile.read(bq.url.removeprefix("sqlite:")) if m.queue == queue]


def publish(bq, queue, count, *options, urn="urn:x", first=0):
    text = "".join(f'{{"n":{n}}}\n' for n in range(first, first + count))
    return bq.run("publish", "-q", queue, "--lines", urn, *options, input=text).out.decode().split()


def fail_all(bq, queue="orders"):
    bq.run("work", "-q", queue, "--exec", "echo why >&2; exit 65", "--drain", "--quiet", exit=1)


def on_terminal(bq, *args, stdin=subprocess.DEVNULL):
    """Runs bq with stdout and stderr on a terminal; what it showed."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [build.bq_path(), *map(str, args)], cwd=bq.cwd, env=environment(BQ_URL=bq.url, TERM="xterm"), stdin=stdin, stdout=slave, stderr=slave
    )
    os.close(slave)
    shown = b""
    try:
        while True:
            piece = os.read(master, 65536)
            if not piece:
                break
            shown += piece
    except OSError:
        pass  # the other side is closed
    os.close(master)
    assert process.wait(30) == 0, shown
    return shown.decode()


# ---- queues and stats ------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_queues(new_bq):
    bq = new_bq()
    publish(bq, "b", 1)
    publish(bq, "a", 1)
    publish(bq, "odd \"name\"", 1)
    assert sorted(bq.run("queues").lines) == [b"a", b"b", b'odd "name"']
    assert {row["queue"] for row in bq.run("queues", "--json").json} == {"a", "b", 'odd "name"'}


def test_a_name_that_would_break_the_line(new_bq):
    bq = new_bq()
    publish(bq, "two\nlines\x1b[1m", 1)
    assert bq.run("queues").lines == [rb'"two\nlines\u001b[1m"']
    assert bq.run("queues", "--json").json == [{"queue": "two\nlines\x1b[1m"}]
    assert "two\nlines" not in on_terminal(bq, "stats")


@pytest.mark.smoke
def test_stats(new_bq):
    """Ready, delayed, in flight and dead of each queue; all of them without -q."""
    bq = new_bq()
    publish(bq, "orders", 3)
    publish(bq, "orders", 2, "--delay", "1h")
    publish(bq, "bad", 4)
    fail_all(bq, "bad")
    assert bq.stats("orders") == {"queue": "orders", "ready": 3, "delayed": 2, "in_flight": 0, "dead": 0}
    assert bq.stats("bad") == {"queue": "bad", "ready": 0, "delayed": 0, "in_flight": 0, "dead": 4}
    assert [row["queue"] for row in bq.run("stats", "-q", "bad", "-q", "orders").json] == ["bad", "orders"]
    assert {"orders", "bad", "bad.dlq"} <= {row["queue"] for row in bq.run("stats").json}
    assert bq.stats("none")["ready"] == 0


def test_stats_of_work_in_flight(new_bq, tmp_path):
    bq = new_bq()
    publish(bq, "orders", 2)
    go = tmp_path / "go"
    bq.start("work", "-q", "orders", "--exec", f"until [ -e {go} ]; do sleep 0.05; done", "--prefetch", 1)
    until(lambda: bq.stats("orders")["in_flight"] == 1, what=lambda: bq.stats("orders"))
    assert bq.stats("orders")["ready"] == 1
    go.touch()
    until(lambda: bq.stats("orders")["in_flight"] == bq.stats("orders")["ready"] == 0, what=lambda: bq.stats("orders"))


def test_stats_on_a_terminal(new_bq):
    bq = new_bq()
    publish(bq, "orders", 3)
    shown = on_terminal(bq, "stats")
    assert "queue" in shown and "in flight" in shown and "{" not in shown
    assert shown.splitlines()[-1].split() == ["orders", "3", "0", "0", "0"]
    assert json.loads(on_terminal(bq, "stats", "--json"))["ready"] == 3


# ---- peek ------------------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_peek(new_bq):
    """In order, all of them or --max, and nothing is consumed."""
    bq = new_bq()
    publish(bq, "orders", 1200, "--header", "h=1", "--key", "k")
    assert [json.loads(line)["data"]["n"] for line in bq.run("peek", "-q", "orders").lines] == list(range(1200))
    assert len(bq.run("peek", "-q", "orders", "-n", 700).lines) == 700
    assert bq.run("peek", "-q", "orders", "--max", 2, "--format", "data").lines == [b'{"n":0}', b'{"n":1}']
    (full,) = bq.run("peek", "-q", "orders", "--max=1", "--format=full").json
    assert full["body"].encode() == bodies(bq, "orders")[0]
    assert list(full) == ["queue", "route", "headers", "key", "attempts", "body"]
    assert (full["headers"], full["key"], full["queue"], full["route"]) == ({"h": "1"}, "k", "orders", "urn:x")
    assert bq.stats("orders")["ready"] == 1200
    assert bq.run("peek", "-q", "none").lines == []


def test_peek_at_anything(new_bq):
    """Bodies that are no JSON, over several lines, or no text: one line each, and what can be is judged as it was."""
    bq = new_bq()
    raws = [b"not json", b"two\nlines", b"\xff\n", b'{\n"job":\t"u" }', b"\x1b[31m"]
    for raw in raws:
        bq.run("publish", "-q", "orders", "--raw", input=raw)
    assert bq.run("peek", "-q", "orders").lines == [
        b"not json", b'{"raw":"two\\nlines"}', b'{"raw":"/wo=","raw_encoding":"base64"}', b'{"job":"u"}', b'{"raw":"\\u001b[31m"}',
    ]  # fmt: skip
    assert [row["body"] for row in bq.run("peek", "-q", "orders", "--format", "full").json][:2] == ["not json", "two\nlines"]
    assert bq.run("peek", "-q", "orders", "--format", "data").lines == [b"null"] * 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_peek_follows(new_bq, number):
    bq = new_bq()
    publish(bq, "orders", 2)
    with Talk(bq, "peek", "-q", "orders", "--follow", "--format", "data") as talk:
        assert [talk.line(), talk.line()] == [b'{"n":0}', b'{"n":1}']
        publish(bq, "orders", 1, first=2)
        assert talk.line() == b'{"n":2}'
        talk.signal(number)
        talk.wait(0)
    with Talk(bq, "peek", "-q", "orders", "--follow", "--max", 4, "--format", "data") as talk:
        publish(bq, "orders", 3, first=3)
        assert [talk.line() for _ in range(4)] == [b'{"n":%d}' % n for n in range(4)]
        talk.wait(0)


def test_peek_into_a_closed_pipe(new_bq):
    """`| head -1`: a clean end, with a reader that goes at once and with --follow."""
    bq = new_bq()
    publish(bq, "orders", 5000)
    for options in ([], ["--follow"]):
        done = subprocess.run(
            ["bash", "-c", 'set -o pipefail; "$@" | head -1', "bash", build.bq_path(), "peek", "-q", "orders", *options],
            env=environment(BQ_URL=bq.url), capture_output=True, timeout=30,
        )  # fmt: skip
        assert done.returncode == 0 and len(done.stdout.splitlines()) == 1 and not done.stderr, done


# ---- redrive ---------------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_redrive(new_bq):
    """A line for each record on stdout, the counts on stderr, and the queue as it was before."""
    bq = new_bq()
    ids = publish(bq, "orders", 3)
    before = bodies(bq, "orders")
    fail_all(bq)
    dry = bq.run("redrive", "-q", "orders", "--dry-run")
    assert [row["redriven"] for row in dry.json] == [False] * 3 and [row["skipped"] for row in dry.json] == [None] * 3
    assert err(dry) == "bq: orders.dlq: 3 seen, 3 would be redriven, 0 skipped (dry run)\n"
    chosen = bq.run("redrive", "-q", "orders", "--dry-run", "--id", ids[0])
    assert err(chosen) == "bq: orders.dlq: 3 seen, 1 would be redriven, 2 skipped (dry run)\n"
    assert bq.stats("orders")["ready"] == 0
    done = bq.run("redrive", "-q", "orders")
    assert sorted(row["id"] for row in done.json) == sorted(ids)
    for row in done.json:
        assert list(row) == ["id", "trace_id", "urn", "reason", "from", "to", "redriven", "bypassed", "skipped"]
        assert (row["urn"], row["reason"], row["from"], row["to"]) == ("urn:x", "failed", "orders.dlq", "orders")
        assert (row["redriven"], row["bypassed"], row["skipped"]) == (True, False, None)
    assert err(done) == "bq: orders.dlq: 3 seen, 3 redriven, 0 skipped\n"
    assert sorted(bodies(bq, "orders")) == sorted(before) and bodies(bq, "orders.dlq") == []
    assert err(bq.run("redrive", "-q", "orders")) == "bq: orders.dlq: 0 seen, 0 redriven, 0 skipped\n"
    assert err(bq.run("redrive", "-q", "orders", "-v")).count("connected") == 1


def test_redrive_selects(new_bq):
    bq = new_bq()
    first = publish(bq, "orders", 2, urn="urn:a")
    second = publish(bq, "orders", 2, urn="urn:b")
    fail_all(bq)

    def redriven(*options):
        done = bq.run("redrive", "-q", "orders", *options)
        return sorted(row["id"] for row in done.json if row["redriven"])

    assert redriven("--id", "none") == []
    assert bq.run("redrive", "-q", "orders", "--id", "none").lines == []
    assert {row["skipped"] for row in bq.run("redrive", "-q", "orders", "--id", "none", "-v").json} == {"not selected"}
    assert redriven("--reason", "poison") == [] == redriven("--older-than", "1h")
    assert redriven("--id", first[1], "--id", second[0], "--urn", "urn:b") == [second[0]]
    assert redriven("--urn", "urn:a", "--urn", "urn:none", "--reason", "failed", "--older-than", "0") == sorted(first)
    assert bq.stats("orders.dlq")["ready"] == 1
    assert redriven("--max", 5) == [second[1]]


def test_redrive_elsewhere(new_bq):
    """--from and --to; --bypass marks the replay."""
    bq = new_bq()
    publish(bq, "orders", 2)
    bq.run("work", "-q", "orders", "--exec", "exit 65", "--dlq=graveyard", "--drain", "--quiet", exit=1)
    done = bq.run("redrive", "-q", "orders", "--from", "graveyard", "--to", "sandbox", "--bypass", "--max", 1)
    assert [(row["from"], row["to"], row["bypassed"]) for row in done.json] == [("graveyard", "sandbox", True)]
    assert (bq.stats("sandbox")["ready"], bq.stats("graveyard")["ready"]) == (1, 1)
    handled = bq.run("work", "-q", "sandbox", "--exec", "echo $BQ_REPLAY", "--drain")
    assert handled.lines == [b"1"]


def test_redrive_leaves_what_is_not_asked_for(new_bq):
    """Records without dead_letter need --force, poison --include: it goes back byte for byte."""
    bq = new_bq()
    publish(bq, "orders", 1)
    plain, poison = bodies(bq, "orders")[0], b'{"a":  1}'
    bq.run("purge", "-q", "orders", "--yes")
    bq.run("publish", "-q", "orders.dlq", "--raw", input=plain)
    bq.run("publish", "-q", "orders", "--raw", input=poison)
    bq.run("work", "-q", "orders", "--print", "--drain", "--quiet", exit=1)
    records = bodies(bq, "orders.dlq")
    done = bq.run("redrive", "-q", "orders")
    assert [(row["redriven"], row["to"]) for row in done.json] == [(False, None)] * 2
    assert sorted(row["skipped"] for row in done.json) == ["no dead letter", "poison"]
    assert "2 skipped" in err(done) and sorted(bodies(bq, "orders.dlq")) == sorted(records)
    forced = bq.run("redrive", "-q", "orders", "--force")
    assert sorted(row["redriven"] for row in forced.json) == [False, True]
    assert bodies(bq, "orders") == [plain]
    included = bq.run("redrive", "-q", "orders", "--include", "poison")
    assert [row["redriven"] for row in included.json] == [True]
    assert bodies(bq, "orders.dlq") == [] and bodies(bq, "orders") == [plain, records[1]]


def test_redrive_slowly(new_bq):
    """--rate: ten messages at 20/s take more than 0.4 s; a signal in between restores the rest and ends by it."""
    bq = new_bq()
    publish(bq, "orders", 10)
    fail_all(bq)
    began = time.monotonic()
    bq.run("redrive", "-q", "orders", "--rate", "20/s")
    assert time.monotonic() - began > 0.4
    fail_all(bq)
    with Talk(bq, "redrive", "-q", "orders", "--rate", "2") as talk:
        until(lambda: bq.stats("orders")["ready"] >= 1, what=lambda: repr(talk))
        talk.signal(signal.SIGTERM)
        talk.wait(-signal.SIGTERM)
    back, left = len(bodies(bq, "orders")), len(bodies(bq, "orders.dlq"))
    assert 1 <= back < 10 and back + left == 10
    assert bq.stats("orders.dlq")["ready"] == left


def test_redrive_into_a_closed_pipe(new_bq):
    """The run ends, cleanly, and nothing is lost between the queues."""
    bq = new_bq()
    publish(bq, "orders", 800)
    fail_all(bq)
    done = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$@" | head -1', "bash", build.bq_path(), "redrive", "-q", "orders"],
        env=environment(BQ_URL=bq.url), capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 1, done
    assert len(bodies(bq, "orders")) + len(bodies(bq, "orders.dlq")) == 800


# ---- purge -----------------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_purge(new_bq):
    bq = new_bq()
    publish(bq, "orders", 3)
    publish(bq, "orders", 1, "--delay", "1h")
    publish(bq, "other", 1)
    assert bq.run("purge", "-q", "orders", exit=64).err
    assert bq.stats("orders")["ready"] == 3
    done = bq.run("purge", "-q", "orders", "--yes")
    assert err(done) == "bq: orders: 4 deleted\n" and not done.out
    assert bodies(bq, "orders") == [] and len(bodies(bq, "other")) == 1
    assert bq.run("purge", "-q", "other", "--yes", "--json", "--quiet").json == [{"queue": "other", "deleted": 1}]
    assert err(bq.run("purge", "-q", "other", "--yes")) == "bq: other: 0 deleted\n"


# ---- progress --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quiet", [False, True])
def test_waiting_is_told_on_a_terminal(new_bq, quiet):
    """A misspelt queue is waited for: once, after a second, and only to a terminal that was not asked to be quiet."""
    bq = new_bq()
    options = ["work", "-q", "ordesr", "-q", "other", "--exec", "true", *(["--quiet"] if quiet else [])]
    notice = b"bq: waiting for messages on ordesr, other; Ctrl-C stops"
    master, slave = pty.openpty()
    began = time.monotonic()
    process = subprocess.Popen(
        [build.bq_path(), *options], cwd=bq.cwd, env=environment(BQ_URL=bq.url), stdin=subprocess.DEVNULL, stdout=slave, stderr=slave
    )
    os.close(slave)
    shown = b""
    try:
        # A further second and more, so that a second notice, or one in spite of --quiet, would be seen.
        while time.monotonic() - began < (15 if not quiet and notice not in shown else 3.5):
            if select.select([master], [], [], 0.2)[0]:
                shown += os.read(master, 65536)
                assert time.monotonic() - began >= 1 or notice not in shown
    finally:
        process.terminate()
        status = process.wait(30)
        os.close(master)
    assert (status, shown.count(notice)) == (0, 0 if quiet else 1), shown


def test_waiting_is_not_told_in_a_file(new_bq):
    bq = new_bq()
    running = bq.start("work", "-q", "orders", "-v", "--exec", "true")
    until(lambda: b"connected" in running.err, what=lambda: running.err)
    publish(bq, "orders", 1)
    publish(bq, "orders", 1, "--delay", "2500ms")
    until(lambda: sum(bq.stats("orders")[k] for k in ("ready", "delayed", "in_flight")) == 0, what=lambda: bq.stats("orders"))
    assert b"waiting for" not in running.stop().err


def test_progress_only_on_a_terminal(new_bq, tmp_path):
    """After a second, on a terminal, and never in a file."""
    bq = new_bq()
    publish(bq, "orders", 8)
    fail_all(bq)
    shown = on_terminal(bq, "redrive", "-q", "orders", "--rate", "4/s")
    assert "seen, " in shown and "\r\x1b[K" in shown
    assert shown.splitlines()[-1].strip().endswith("8 seen, 8 redriven, 0 skipped")
    fail_all(bq)
    done = bq.run("redrive", "-q", "orders", "--rate", "4/s")
    assert b"\r" not in done.err and len(done.err.splitlines()) == 1
    publish(bq, "orders", 1, first=9)
    assert "\r" not in on_terminal(bq, "peek", "-q", "orders", "--max", 1).replace("\r\n", "\n")
