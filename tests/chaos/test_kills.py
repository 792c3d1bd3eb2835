"""Processes that are killed, frozen or slow: nothing is lost, nothing runs twice that must not.

BQ_CHAOS_ROUNDS (20) and BQ_CHAOS_SEED (drawn and printed) choose what is tried.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from support import build, sqlitefile
from support.wait import until

ROUNDS = build.scale("BQ_CHAOS_ROUNDS", 20)
SEED = build.scale("BQ_CHAOS_SEED", int.from_bytes(os.urandom(4), "big"))


# ---- SIGKILL at random moments ------------------------------------------------------------------------------------------

COPROCESS = """
import json, os, sys
handled = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for line in sys.stdin:
    message = json.loads(line)
    os.write(handled, (message["id"] + "\\n").encode())
    print(json.dumps({"n": message["n"], "ok": True}), flush=True)
"""


class Publisher:
    """`bq publish --lines`, fed by a thread that stays a few messages ahead of the confirmations."""

    def __init__(self, bq, name):
        self.bq, self.name, self.fed, self.running, self.confirmed = bq, name, 0, None, []
        self.quit = False

    def start(self):
        self.running = self.bq.start("publish", "-q", "orders", "--lines", stdin=subprocess.PIPE)
        self.thread = threading.Thread(target=self._feed, args=(self.running,), daemon=True)
        self.thread.start()

    def _feed(self, running):
        first = self.fed
        try:
            while running.alive and not self.quit:
                if self.fed - first - running.out.count(b"\n") >= 8:
                    time.sleep(0.005)  # flow control: the confirmations are what is awaited
                    continue
                for _ in range(4):
                    line = {"urn": f"urn:x:{self.fed % 3}", "data": {"n": self.fed}, "id": f"{self.name}-{self.fed}"}
                    self.fed += 1
                    running.process.stdin.write(json.dumps(line).encode() + b"\n")
                running.process.stdin.flush()
                time.sleep(0.02)  # a rate that shell handlers can follow
        except OSError:
            pass  # it was killed

    def kill(self):
        self.running.kill()
        self.thread.join()
        self._collect()

    def finish(self):
        self.quit = True
        self.thread.join()
        self.running.process.stdin.close()
        self.running.wait()
        self._collect()

    def _collect(self):
        text = self.running.out.decode()
        self.confirmed += [line for line in text.split("\n")[:-1]]


class Worker:
    def __init__(self, bq, *args):
        self.bq, self.args, self.running = bq, args, None

    def start(self):
        self.running = self.bq.start("work", "-q", "orders", "--max-attempts", "1000", *self.args)

    def kill(self):
        self.running.kill()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_is_lost_when_processes_are_killed(tmp_path, new_bq):
    """Contract 3 and 7.11: rounds of SIGKILL at random moments on publishers and workers of one file. Every message
    whose publish was confirmed is handled at least once, or still there."""
    print(f"seed {SEED}, {ROUNDS} rounds")
    rng = random.Random(SEED)
    handled = tmp_path / "handled"
    (tmp_path / "coprocess.py").write_text(COPROCESS)
    bq = new_bq(f"sqlite:{tmp_path / 'bq.db'}?retry_after=2s")
    append = f'printf "%s\\n" "$BQ_ID" >>{handled}'
    actors = [
        Publisher(bq, "a"),
        Publisher(bq, "b"),
        Worker(bq, "--concurrency", "4", "--exec", append),
        Worker(bq, "--concurrency", "2", "--exec", f'[ "$BQ_ATTEMPTS" -gt 0 ] || exit 1; {append}'),
        Worker(bq, "--handle-stdio", f"{sys.executable} {tmp_path / 'coprocess.py'} {handled}"),
    ]
    for actor in actors:
        actor.start()
    killed = 0
    for number in range(ROUNDS):
        pause = rng.uniform(0.1, 0.8)
        victims = rng.sample(range(len(actors)), rng.randint(1, 4))
        time.sleep(pause)  # the random moment itself, not a wait for something
        print(f"round {number}: after {pause:.3f} s kill {victims}")
        for victim in victims:
            assert actors[victim].running.alive, f"it ended by itself: {actors[victim].running}"
            actors[victim].kill()
            actors[victim].start()
            killed += 1
    publishers, workers = actors[:2], actors[2:]
    for publisher in publishers:
        publisher.finish()
    confirmed = [id for publisher in publishers for id in publisher.confirmed]

    def idle():
        stats = bq.stats("orders")
        return not (stats["ready"] or stats["delayed"] or stats["in_flight"])

    until(idle, 90, lambda: f"an empty queue: {bq.stats('orders')}", poll=0.2)
    for worker in workers:
        worker.running.stop()
    ran = handled.read_text().split()
    left = sqlitefile.read(tmp_path / "bq.db")
    print(f"{killed} kills, {len(confirmed)} confirmed, {len(set(ran))} handled in {len(ran)} runs, {len(left)} left")
    assert not left, "with so many attempts nothing is dead-lettered, and the queue was empty"
    assert len(confirmed) == len(set(confirmed)) and len(confirmed) > ROUNDS * 5
    lost = set(confirmed) - set(ran)
    assert not lost, f"seed {SEED}: confirmed and never handled: {sorted(lost)}"
    fed = {f"{p.name}-{n}" for p in publishers for n in range(p.fed)}
    assert set(ran) <= fed, "handled what was never published"


# ---- a handler that kills its worker ------------------------------------------------------------------------------------


def _dead(path):
    return [m for m in sqlitefile.read(path) if m.queue.endswith(".dlq")]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 3])
def test_a_handler_that_kills_its_worker(tmp_path, new_bq, limit):
    """Contract 3, crash loops (sidekiq#4633): after max_attempts lapses the message is dead-lettered as WorkerLost
    without another call of a handler, and its neighbours are worked."""
    path, calls, good = tmp_path / "bq.db", tmp_path / "calls", tmp_path / "good"
    bq = new_bq(f"sqlite:{path}?retry_after=1s")
    bq.run("publish", "-q", "orders", "urn:killer", "{}")
    body = bq.peek("orders")[0]
    args = [
        "work", "-q", "orders", "--max-attempts", limit, "--handle", f"urn:killer=echo x >>{calls}; kill -9 $PPID",
        "--handle", f"urn:good=echo x >>{good}",
    ]  # fmt: skip
    deaths, worker = 0, None
    deadline = time.monotonic() + 40
    while not _dead(path):
        assert time.monotonic() < deadline, f"never dead-lettered; {deaths} workers died, {worker}"
        worker = bq.start(*args)
        until(lambda: not worker.alive or _dead(path), 20, lambda: f"the end of {worker}")
        if not worker.alive:
            assert worker.process.returncode == -signal.SIGKILL, worker
            deaths += 1
    bq.run("publish", "-q", "orders", "urn:good", "{}")
    until(good.exists, what=lambda: f"the next message, {worker}")
    worker.stop()
    assert deaths == limit
    assert calls.read_text().split() == ["x"] * limit
    (record,) = _dead(path)
    block = json.loads(record.body)["dead_letter"]
    assert (block["reason"], block["exception"], block["attempts"]) == ("failed", "WorkerLost", limit)
    assert block["original_queue"] == "orders"
    assert record.body.startswith(body[: body.rindex(b',"attempts":')])


@pytest.mark.slow
def test_the_innocent_beside_a_killer_are_worked(tmp_path, new_bq):
    """Contract 3, crash loops: what a killed worker had merely taken ahead lapses beside the guilty message. At its
    last chance a message is taken alone, so only the guilty one ends as WorkerLost, and the drain waits for leases."""
    path, calls = tmp_path / "bq.db", tmp_path / "calls"
    bq = new_bq(f"sqlite:{path}?retry_after=1s")
    lines = "".join(json.dumps({"order": i}) + "\n" for i in range(1, 6))
    bq.run("publish", "-q", "orders", "--lines", "urn:x", input=lines)
    handler = f"d=$(cat); echo $d >>{calls}; case $d in *:1}}) kill -9 $PPID;; esac"
    deaths = 0
    while (worker := bq.run("work", "-q", "orders", "--exec", handler, "--drain=all", exit=None)).code != 1:
        assert worker.code == -signal.SIGKILL, worker
        deaths += 1
        assert deaths <= 3
    assert deaths == 3
    seen = [json.loads(line)["order"] for line in calls.read_text().splitlines()]
    assert sorted(seen) == [1, 1, 1, 2, 3, 4, 5]
    assert [json.loads(m.body)["data"]["order"] for m in _dead(path)] == [1]


@pytest.mark.slow
def test_a_last_chance_that_others_took_holds_nobody_up(tmp_path, new_bq):
    """Contract 3, crash loops: a worker with a slow handler waits with a message that is to be taken alone, but only as
    long as that message is there: once another worker has settled it, the rest is worked beside the slow one."""
    path, go, ran = tmp_path / "bq.db", tmp_path / "go", tmp_path / "ran"
    bq = new_bq(f"sqlite:{path}?retry_after=1s")
    bq.run("publish", "-q", "suspect", "urn:suspect", "{}")
    for _ in range(2):
        bq.run("work", "-q", "suspect", "--exec", "kill -9 $PPID", "--drain", exit=-signal.SIGKILL)
        until(lambda: not any(at > time.time() * 1000 for at in sqlitefile.leases(path).values()), what="a lapse")
    slow = f'case $(cat) in *slow*) while [ ! -e {go} ]; do sleep 0.1; done ;; esac; echo x >>{ran}'
    bq.run("publish", "-q", "orders", "urn:x", '{"slow":1}')
    worker = bq.start("work", "-q", "orders", "-q", "suspect", "--concurrency", 2, "--exec", slow)
    until(lambda: bq.stats("orders")["in_flight"] == 1, what=lambda: worker)
    bq.run("publish", "-q", "orders", "urn:x", "{}")
    bq.run("work", "-q", "suspect", "--exec", "true", "--max", 1)
    until(ran.exists, what=lambda: f"the quick one beside the slow one, {worker}")
    assert not go.exists()
    go.touch()
    until(lambda: len(ran.read_text().split()) == 2, what=lambda: worker)
    worker.stop()


@pytest.mark.slow
def test_killed_workers_count_no_attempts(tmp_path, new_bq):
    """Contract 7.11: a lapse below the limit leaves the body as it is: attempts 0 when it is handled at last."""
    path, calls = tmp_path / "bq.db", tmp_path / "calls"
    bq = new_bq(f"sqlite:{path}?retry_after=1s")
    bq.run("publish", "-q", "orders", "urn:x", "{}")
    handler = f'echo "$BQ_ATTEMPTS" >>{calls}; [ "$(wc -l <{calls})" -ge 3 ] || kill -9 $PPID'
    for _ in range(2):
        bq.start("work", "-q", "orders", "--max-attempts", 5, "--exec", handler).wait(-signal.SIGKILL)
    bq.run("work", "-q", "orders", "--max-attempts", 5, "--exec", handler, "--max", 1)
    assert calls.read_text().split() == ["0", "0", "0"]
    assert not sqlitefile.read(path)


# ---- leases -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("status, left", [(65, ("orders.dlq", 1)), (0, None), (1, ("orders", 1))])
def test_a_frozen_worker_settles_nothing(tmp_path, new_bq, status, left):
    """A worker stopped past its lease: another one takes and settles the message; what the first one then wants to
    settle is lost, and nothing is there twice, on the dead-letter queue least of all."""
    path, started, go = tmp_path / "bq.db", tmp_path / "started", tmp_path / "go"
    bq = new_bq(f"sqlite:{path}?retry_after=1s")
    bq.run("publish", "-q", "orders", "urn:x", "{}")
    args = ["work", "-q", "orders", "--max-attempts", 3, "--retry-backoff", "1h"]

    def there():
        return [(m.queue, m.attempts) for m in sqlitefile.read(path)]

    slow = f"echo x >>{started}; while [ ! -e {go} ]; do sleep 0.02; done; exit {status}"
    frozen = bq.start(*args, "--exec", slow)
    until(started.exists, what="the handler's start")
    frozen.signal(signal.SIGSTOP)
    try:
        second = bq.start(*args, "--max", 1, "--exec", f"exit {status}")
        # --max: 1 when the message was dead-lettered (bq-work(1)).
        second.wait(exit=1 if status == 65 else 0, timeout=30)
        assert there() == ([left] if left else [])
    finally:
        go.touch()
        frozen.signal(signal.SIGCONT)
    frozen.until_err(rb"(?i)lost|no longer ours|lapsed")
    summary = frozen.stop().err.decode()
    assert there() == ([left] if left else []), summary
    assert re.search(r"leases lost 1\b", summary.splitlines()[-1]), summary


@pytest.mark.slow
def test_the_lease_is_extended_while_the_handler_runs(tmp_path, new_bq):
    """kombu#337: lease 2 s, handler 7 s, two workers: one run."""
    ran = tmp_path / "ran"
    bq = new_bq(f"sqlite:{tmp_path / 'bq.db'}?retry_after=2s")
    bq.run("publish", "-q", "orders", "urn:x", "{}")
    workers = [bq.start("work", "-q", "orders", "--exec", f"echo x >>{ran}; sleep 7") for _ in range(2)]
    until(lambda: ran.exists() and not sqlitefile.read(tmp_path / "bq.db"), 25, "the handler's end")
    for worker in workers:
        worker.stop()
    assert ran.read_text().split() == ["x"]


@pytest.mark.slow
def test_leases_of_messages_that_wait_for_a_handler_are_extended(tmp_path, new_bq):
    """What was taken ahead (prefetch) and has not started lives as long: no message runs twice, none lapses."""
    ran = tmp_path / "ran"
    bq = new_bq(f"sqlite:{tmp_path / 'bq.db'}?retry_after=1s")
    bq.run("publish", "-q", "orders", "--lines", "urn:x", input='{"n":1}\n' * 6)
    workers = [
        bq.start("work", "-q", "orders", "--concurrency", 1, "--prefetch", 3, "--exec", f"echo $BQ_ID >>{ran}; sleep 1.2")
        for _ in range(2)
    ]
    until(lambda: ran.exists() and not sqlitefile.read(tmp_path / "bq.db"), 25, "an empty queue")
    for worker in workers:
        worker.stop()
    ids = ran.read_text().split()
    assert len(ids) == 6 and len(set(ids)) == 6


@pytest.mark.slow
def test_another_worker_takes_over_without_a_restart(tmp_path, new_bq):
    """sidekiq#5540, sidekiq#4611: a running worker takes over what a killed one held, once its lease has lapsed and not
    before."""
    ran = tmp_path / "ran"
    bq = new_bq(f"sqlite:{tmp_path / 'bq.db'}?retry_after=2s")
    bq.run("publish", "-q", "orders", "urn:x", "{}")
    first = bq.start("work", "-q", "orders", "--prefetch", 1, "--exec", f"echo first >>{ran}; sleep 60")
    until(ran.exists, what="the first worker's handler")
    second = bq.start("work", "-q", "orders", "--exec", f"echo second >>{ran}")
    other = bq.run("publish", "-q", "orders", "urn:x", "{}").out  # proof that the second one works the queue
    until(lambda: "second" in ran.read_text(), what=lambda: f"the second worker, {second} {other}")
    assert ran.read_text().split() == ["first", "second"]
    killed = time.monotonic()
    first.kill()
    until(lambda: ran.read_text().split() == ["first", "second", "second"], 10, "the take-over")
    assert time.monotonic() - killed < 5
    second.stop()
