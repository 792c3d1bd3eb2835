"""Disks that are full, syncs that fail, files that are locked, read-only or deleted: what is confirmed is kept, what is
not done is said, and work goes on when the fault is over."""

import json
import os
import sqlite3
import stat
import subprocess
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from support import build, disk, sqlitefile
from support.marks import Marks
from support.wait import until
from support.workload import Workload

STRIDE = build.scale("BQ_POWER_STRIDE", 1)
LINES = "".join(f'{{"urn":"urn:x","data":{{"n":{n}}}}}\n' for n in range(50))


# ---- the disk is full -------------------------------------------------------------------------------------------------


@pytest.mark.native
@pytest.mark.slow
@pytest.mark.parametrize("length, step", [(1, 1), (4, 5)])
def test_disk_full_at_every_write(shim, tmp_path, length, step):
    """ENOSPC at any write, for one or for several: an operation succeeds at a second try or fails cleanly and succeeds
    later, nothing is lost and nothing is there twice."""
    _at_every(Workload(shim, tmp_path, 8), "full", length, step)


@pytest.mark.native
@pytest.mark.slow
def test_a_sync_that_fails_at_every_sync(shim, tmp_path):
    """EIO at any sync: the outcome is told as refused or unknown, never as done; trying again succeeds; nothing is lost."""
    _at_every(Workload(shim, tmp_path, 8), "bad_sync", 1)


def _at_every(workload, fault, length, step=1):
    """The workload once for each of its operations (of each `step`), with the fault from there on for `length` of them."""
    failed = opened = 0
    for number in range(1, workload.operations() + 1, step * STRIDE):
        home, done = workload.run(f"{fault}-{number}", tolerant=True, **{fault: f"{number}:{length}"})
        text = (home / "marks").read_text() if (home / "marks").exists() else ""
        if done.returncode != 0:
            # Opening may fail, and says so: nothing was begun.
            assert not text and b"open: " in done.stderr, f"{fault} {number}: {done.stderr.decode()}; files in {home}"
            continue
        opened += 1
        failed += "refuse" in text or "unknown" in text
        try:
            Marks().read(text).check(sqlitefile.read(home / "bq.db"))
        except Exception as wrong:
            raise AssertionError(f"{fault} from {number}: {wrong}; files in {home}") from wrong
    print(f"{opened} runs, {failed} in which an operation failed")
    assert opened >= 5
    # A single full write is tried again by the driver itself.
    assert failed or (fault, length) == ("full", 1), "no operation of the workload ever met the fault"


@pytest.mark.native
def test_publish_to_a_full_disk(shim, tmp_path, new_bq):
    """kcat#36: a line that was not delivered means a non-zero exit and a count; what was printed is there."""
    home = tmp_path / "disk"
    home.mkdir()
    full = tmp_path / "full"
    bq = new_bq(f"sqlite:{home / 'bq.db'}", env=disk.environment(shim, home, full_while=full))
    bq.run("publish", "-q", "orders", "urn:x", "{}")
    full.touch()
    # The side files of the database cannot be made either: opening it is temporary, and not "no such file".
    one = bq.run("publish", "-q", "orders", "--timeout", "2s", "urn:x", "{}", exit=None)
    assert one.code in (74, 75) and not one.out and one.err and b"no such file" not in one.err, one
    full.unlink()
    # With another process at the file they are there, and it is the write that fails.
    publisher = bq.start("publish", "-q", "orders", "--timeout", "2s", "--lines", stdin=subprocess.PIPE)
    feed = publisher.process.stdin
    feed.write(LINES.encode())
    feed.flush()
    until(lambda: publisher.out.count(b"\n") == 50, what=lambda: f"the ids, {publisher}")
    full.touch()
    feed.write(LINES.encode())
    feed.close()
    many = publisher.wait(exit=1)
    assert many.out.count(b"\n") == 50 and b"full" in many.err
    assert b"50" in many.err.splitlines()[-1], many
    full.unlink()
    assert len(sqlitefile.read(home / "bq.db")) == 51
    assert len(bq.run("publish", "-q", "orders", "--lines", input=LINES).lines) == 50
    assert len(sqlitefile.read(home / "bq.db")) == 101


@pytest.mark.native
def test_settling_on_a_full_disk(shim, tmp_path, new_bq):
    """A handler ends while the disk is full: the message is neither lost nor dead-lettered, and is settled once there
    is room again; the worker lives on."""
    home = tmp_path / "disk"
    home.mkdir()
    full, go, ran = tmp_path / "full", tmp_path / "go", tmp_path / "ran"
    url = f"sqlite:{home / 'bq.db'}?retry_after=2s"
    new_bq(url).run("publish", "-q", "orders", "urn:x", "{}")
    bq = new_bq(url, env=disk.environment(shim, home, full_while=full))
    handler = f"echo x >>{ran}; while [ ! -e {go} ]; do sleep 0.05; done"
    worker = bq.start("work", "-q", "orders", "--exec", handler)
    until(ran.exists, what="the handler's start")
    full.touch()
    go.touch()
    worker.until_err(rb"full")
    assert worker.alive
    assert len(sqlitefile.read(home / "bq.db")) == 1, "an acknowledge that was not written took effect"
    full.unlink()
    until(lambda: not sqlitefile.read(home / "bq.db"), what=lambda: f"the acknowledge, {worker}")
    worker.stop()


@contextmanager
def _small_disk(size):
    """A file system of its own of that many KiB, where this machine lets us."""
    if os.geteuid() != 0:
        pytest.skip("expected: only root can mount a small file system")
    home = Path(tempfile.mkdtemp(prefix="bq-small-"))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", home], capture_output=True)
    if mounted.returncode != 0:
        home.rmdir()
        pytest.skip("expected: this machine does not let root mount: " + mounted.stderr.decode().strip())
    try:
        yield home
    finally:
        subprocess.run(["umount", "-l", home], check=True)
        home.rmdir()


def test_a_file_system_that_fills_up(tmp_path, new_bq):
    """A real full disk: published until it is full; once there is room again (more than the write-ahead log grows
    to between two checkpoints), worked empty and published again."""
    with _small_disk(48 * 1024) as home:
        (home / "filler").write_bytes(bytes(24 * 1024 * 1024))
        bq = new_bq(f"sqlite:{home / 'bq.db'}")
        lines = "".join(json.dumps({"urn": "urn:x", "data": {"n": n, "filler": "x" * 100000}}) + "\n" for n in range(300))
        done = bq.run("publish", "-q", "orders", "--timeout", "2s", "--lines", input=lines, exit=1)
        confirmed = done.out.decode().split()
        assert 10 < len(confirmed) < 300
        assert b"full" in done.err
        assert set(confirmed) <= {json.loads(body)["meta"]["id"] for body in bq.peek("orders")}
        (home / "filler").unlink()
        printed = bq.run("work", "-q", "orders", "--print", "--drain")
        ids = [body["meta"]["id"] for body in printed.json]
        assert len(ids) == len(set(ids)) and set(confirmed) <= set(ids)
        bq.run("publish", "-q", "orders", "urn:x", "{}")
        assert len(bq.peek("orders")) == 1


@pytest.mark.native
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_sync_that_fails_confirms_nothing(shim, tmp_path, new_bq, number):
    """A publish whose sync failed is not confirmed: the id is not printed, the exit status says so."""
    home = tmp_path / "disk"
    home.mkdir()
    new_bq(f"sqlite:{home / 'bq.db'}").run("publish", "-q", "orders", "urn:first", "{}")
    bq = new_bq(f"sqlite:{home / 'bq.db'}", env=disk.environment(shim, home, bad_sync=f"{number}:1000"))
    done = bq.run("publish", "-q", "orders", "--timeout", "2s", "urn:x", "{}", exit=None)
    if done.code == 0:
        # The commit needed fewer syncs than this: then they all succeeded.
        assert number > 1 and done.out
    else:
        assert done.code in (69, 74, 75) and not done.out and done.err, done
    messages = sqlitefile.read(home / "bq.db")
    assert b"urn:first" in messages[0].body


# ---- the file is locked -----------------------------------------------------------------------------------------------


@contextmanager
def _locked(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA busy_timeout = 5000")
        db.execute("BEGIN EXCLUSIVE")
        yield
        db.execute("ROLLBACK")


def test_locked_for_longer_than_busy_timeout(tmp_path, new_bq):
    """Another program holds the file: temporary, exit 75, and the text says what it is."""
    bq = new_bq(f"sqlite:{tmp_path / 'bq.db'}?busy_timeout=300ms")
    bq.run("publish", "-q", "orders", "urn:x", "{}")
    with _locked(tmp_path / "bq.db"):
        done = bq.run("publish", "-q", "orders", "--timeout", "1s", "urn:x", "{}", exit=75)
        assert b"locked" in done.err and not done.out
    bq.run("publish", "-q", "orders", "urn:x", "{}")
    assert len(bq.peek("orders")) == 2


@pytest.mark.smoke
def test_locked_for_shorter_than_busy_timeout(tmp_path, new_bq):
    """A lock that is released in time is waited for."""
    bq = new_bq(f"sqlite:{tmp_path / 'bq.db'}?busy_timeout=20s")
    bq.run("publish", "-q", "orders", "urn:x", "{}")
    with _locked(tmp_path / "bq.db"):
        publisher = bq.start("publish", "-q", "orders", "urn:x", "{}")
        # It has the file open and is still there: it waits, rather than not having come so far.
        until(lambda: _has_open(publisher.pid, tmp_path / "bq.db"), what="the publisher at the file")
        assert publisher.alive
    assert publisher.wait().out
    assert len(bq.peek("orders")) == 2


def _has_open(pid, path):
    try:
        return any(os.readlink(fd) == str(path) for fd in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def test_a_worker_outlives_a_lock(tmp_path, new_bq):
    """A worker whose file is locked for longer than busy_timeout goes on afterwards."""
    bq = new_bq(f"sqlite:{tmp_path / 'bq.db'}?busy_timeout=200ms")
    bq.run("publish", "-q", "orders", "urn:x", "{}")
    ran = tmp_path / "ran"
    worker = bq.start("work", "-q", "orders", "--exec", f"echo $BQ_ID >>{ran}")
    until(ran.exists, what="the first message")
    bq.run("publish", "-q", "orders", "urn:x", "{}", "--delay", "1s")
    with _locked(tmp_path / "bq.db"):
        worker.until_err(rb"locked")
        assert worker.alive
    id = bq.run("publish", "-q", "orders", "urn:x", "{}").out
    until(lambda: id in ran.read_bytes(), what=lambda: f"the second message, {worker}")
    worker.stop()


# ---- files that cannot be written, are none, or vanish ----------------------------------------------------------------


@contextmanager
def _unprivileged(new_bq):
    """A directory and a way to run bq as somebody whom permissions stop."""
    home = Path(tempfile.mkdtemp(prefix="bq-plain-"))
    home.chmod(0o777)
    wrap = []
    if os.geteuid() == 0:
        wrap = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        probe = subprocess.run([*wrap, build.bq_path(), "version"], capture_output=True)
        if probe.returncode != 0:
            pytest.skip("expected: bq cannot be run by another user here: " + probe.stderr.decode().strip())
    bq = new_bq(f"sqlite:{home / 'bq.db'}", wrap=wrap)
    bq.cwd = home
    try:
        yield home, bq
    finally:
        home.chmod(0o777)
        for file in home.iterdir():
            file.unlink()
        home.rmdir()


def test_a_file_that_cannot_be_written(new_bq):
    """Permission refused is exit 77, and names the file."""
    with _unprivileged(new_bq) as (home, bq):
        bq.run("publish", "-q", "orders", "urn:x", "{}")
        for file in home.iterdir():
            file.chmod(0o444)
        done = bq.run("publish", "-q", "orders", "urn:x", "{}", exit=77)
        assert b"bq.db" in done.err and not done.out


def test_a_directory_that_cannot_be_written(new_bq):
    with _unprivileged(new_bq) as (home, bq):
        home.chmod(0o555)
        done = bq.run("publish", "-q", "orders", "urn:x", "{}", exit=77)
        assert b"bq.db" in done.err and not done.out
        assert not stat.S_IMODE(home.stat().st_mode) & 0o222 and not list(home.iterdir())


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + b"\xff" * 4096, b"\0" * 8192])
def test_a_file_that_is_no_database(tmp_path, new_bq, content):
    """Somebody's file is neither overwritten nor taken for an empty queue."""
    path = tmp_path / "bq.db"
    path.write_bytes(content)
    done = new_bq().run("publish", "-q", "orders", "--timeout", "2s", "urn:x", "{}", exit=None)
    assert done.code in (65, 78) and done.err and not done.out, done
    assert path.read_bytes() == content


def test_a_database_of_another_program(tmp_path, new_bq):
    with closing(sqlite3.connect(tmp_path / "bq.db")) as db:
        db.execute("CREATE TABLE customers (name)")
        db.commit()
    done = new_bq().run("publish", "-q", "orders", "urn:x", "{}", exit=78)
    assert b"another program" in done.err


@pytest.mark.slow
def test_a_file_deleted_underneath_a_publisher(tmp_path, new_bq):
    """What is confirmed after the file was deleted is not in the deleted file: it is in the new one, or was refused."""
    bq = new_bq()
    publisher = bq.start("publish", "-q", "orders", "--lines", "urn:x", stdin=subprocess.PIPE)
    feed = publisher.process.stdin
    feed.write(b'{"n":1}\n')
    feed.flush()
    until(lambda: publisher.out.count(b"\n") == 1, what=lambda: f"the first id, {publisher}")
    for file in tmp_path.glob("bq.db*"):
        file.unlink()
    feed.write(b'{"n":2}\n')
    feed.close()
    done = publisher.wait(exit=None)
    confirmed = done.out.decode().split()[1:]
    there = [json.loads(b)["meta"]["id"] for b in bq.peek("orders")] if (tmp_path / "bq.db").exists() else []
    assert set(confirmed) <= set(there), f"confirmed, and in no file: {done}"
    if not confirmed:
        assert done.code != 0 and done.err


@pytest.mark.slow
def test_a_file_deleted_underneath_a_worker(tmp_path, new_bq):
    """A worker whose file was deleted works the new one, or ends and says why; it never sits there unaware."""
    bq, ran = new_bq(), tmp_path / "ran"
    bq.run("publish", "-q", "orders", "urn:x", "{}")
    worker = bq.start("work", "-q", "orders", "--exec", f"echo $BQ_ID >>{ran}")
    until(ran.exists, what="the first message")
    for file in tmp_path.glob("bq.db*"):
        file.unlink()
    id = bq.run("publish", "-q", "orders", "urn:x", "{}").out
    until(lambda: id in ran.read_bytes() or not worker.alive, what=lambda: f"the second message, {worker}")
    if worker.alive:
        worker.stop()
    else:
        assert worker.process.returncode not in (0, None) and worker.err
