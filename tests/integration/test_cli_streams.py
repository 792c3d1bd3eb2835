"""Streams that nobody reads: a pager, a full pipe. Work, leases and settlements go on."""

import json
import os
import subprocess
import sys

from support import sqlitefile
from support.wait import until


def bodies(bq, queue):
    return [m.body for m in sqlitefile.read(bq.url.removeprefix("sqlite:").split("?")[0]) if m.queue == queue]


def publish(bq, count):
    bq.run("publish", "-q", "orders", "--lines", "urn:x", input="".join(f'{{"n":{n}}}\n' for n in range(count)))


FAILING = r"""
import os
while True:
    piece = os.read(0, 1 << 20)
    if not piece: break
    for line in piece.splitlines():
        if line.startswith(b'{"n":'):
            os.write(1, b'{"n":%s,"error":"%s"}\n' % (line[5:line.index(b",")], b"x" * 150))
"""


def test_nobody_reads_stderr(new_bq, tmp_path):
    """Thousands of failures into a pipe that is never read: all are settled, the worker ends when told to, and when
    somebody reads after all, what was left out is counted."""
    bq = new_bq()
    count = 4000
    publish(bq, count)
    (tmp_path / "failing.py").write_text(FAILING)
    command = f"exec {sys.executable} -S {tmp_path / 'failing.py'}"
    process = bq._popen(
        ["work", "-q", "orders", "--handle-stdio", command, "--max-attempts", 1, "--drain"], None,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        until(lambda: bq.stats("orders")["dead"] == count, 60, what=lambda: bq.stats("orders"))
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1
    told = said.decode().splitlines()
    assert told[-1].startswith(f"bq: handled {count}") or "were left out" in told[-1]
    left_out = sum(int(line.split()[1]) for line in told if "were left out" in line)
    assert left_out + sum("dead-lettered" in line and "failed" in line for line in told) >= count


def test_a_worker_ends_although_nobody_reads_stderr(new_bq, tmp_path):
    """SIGTERM with a full pipe behind stderr: it gives up on its last words after some seconds."""
    bq = new_bq()
    publish(bq, 4000)
    (tmp_path / "failing.py").write_text(FAILING)
    command = f"exec {sys.executable} -S {tmp_path / 'failing.py'}"
    read, write = os.pipe()
    process = bq._popen(
        ["work", "-q", "orders", "--handle-stdio", command, "--max-attempts", 1], None,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=write,
    )  # fmt: skip
    os.close(write)
    try:
        until(lambda: bq.stats("orders")["dead"] == 4000, 60, what=lambda: bq.stats("orders"))
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(read)


def test_nobody_reads_stdout(new_bq, tmp_path):
    """--print into a full pipe: one message waits for its reader, its lease is kept, and others are settled meanwhile."""
    bq = new_bq(f"sqlite:{tmp_path / 'bq.db'}?retry_after=1s")
    large = json.dumps({"t": "x" * 200_000})
    bq.run("publish", "-q", "orders", "--lines", "urn:x", input=f"{large}\n{large}\n")
    process = bq._popen(
        ["work", "-q", "orders", "--print", "--format", "data", "--concurrency", 3], None,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        first = until(lambda: sqlitefile.leases(tmp_path / "bq.db"), what="a lease")
        # Poison is told by the thread that keeps the leases: it must not wait for the reader of stdout.
        for _ in range(4):
            bq.run("publish", "-q", "orders", "--raw", "poison")
        until(lambda: bq.stats("orders")["dead"] == 4, what=lambda: bq.stats("orders"))
        kept = max(first.values()) + 2000
        until(lambda: max(sqlitefile.leases(tmp_path / "bq.db").values(), default=0) > kept, what="leases that are renewed")
        # Another worker's drain waits for what is in flight here, and is not given it.
        running = bq.start("work", "-q", "orders", "--print", "--drain", "-v")
        running.until_err(b"connected")
        kept = max(sqlitefile.leases(tmp_path / "bq.db").values()) + 1500
        until(lambda: max(sqlitefile.leases(tmp_path / "bq.db").values(), default=0) > kept, what="leases that are renewed")
        assert running.alive and not running.out, "the waiting message was given to somebody else"
        lines = [process.stdout.readline(), process.stdout.readline()]
        running.wait()
        assert not running.out, "the waiting message was given to somebody else"
        assert [json.loads(line) for line in lines] == [json.loads(large)] * 2
        until(lambda: not bodies(bq, "orders"), what=lambda: bodies(bq, "orders"))
        process.terminate()
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0 and b"leases lost 0" in said
    assert len(bodies(bq, "orders.dlq")) == 4


def test_a_file_at_its_size_limit(new_bq, tmp_path):
    """An error of write, as a full disk is, not the end by a signal."""
    bq = new_bq()
    bq.run("publish", "-q", "orders", "urn:x", '{"a":"%s"}' % ("x" * 100000))
    limited = new_bq(wrap=["bash", "-c", f'ulimit -f 64; exec "$@" >{tmp_path}/out', "limited"])
    done = limited.run("peek", "-q", "orders", exit=74)
    assert b"cannot write to standard output" in done.err
