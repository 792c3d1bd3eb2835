"""The BullMQ layout (contract 7.3) beside the library of Node.js itself, versions 5 and 6, on a real server."""

import json
import re
import time

import pytest

from support.node import Peer
from support.wait import until

URN = "urn:babel:orders:created"
PREFIX = "bull:orders:"


def body(n=0, **data):
    """An envelope as text, the same from either side."""
    return json.dumps(
        {
            "job": URN,
            "trace_id": "trace-1",
            "data": {"n": n, **data},
            "meta": {"id": f"id-{n}", "queue": "orders", "lang": "c", "schema_version": 1, "created_at": 1700000000000},
            "attempts": 0,
        },
        separators=(",", ":"),
    )


class Bull:
    """An empty database, what is in it, and both sides at it."""

    def __init__(self, server, db, library):
        self.server, self.db, self.library = server, db, library
        self.redis = server.client(db=db)
        self.redis.flushdb()
        self.peers = []

    def peer(self):
        self.peers.append(Peer(self.server.port, self.db, self.library))
        return self.peers[-1]

    def url(self, **options):
        text = "&".join(f"{k}={v}" for k, v in options.items())
        return f"bullmq://127.0.0.1:{self.server.port}/{self.db}" + (f"?{text}" if text else "")

    def job(self, id):
        return {k.decode(): v.decode() for k, v in self.redis.hgetall(f"{PREFIX}{id}").items()}

    def events(self):
        entries = self.redis.xrange(f"{PREFIX}events")
        return [{k.decode(): v.decode() for k, v in fields.items()} for _, fields in entries]

    def active(self):
        return self.redis.llen(f"{PREFIX}active")

    def count(self, state):
        key = PREFIX + state
        return self.redis.llen(key) if self.redis.type(key) == b"list" else self.redis.zcard(key)

    def dump(self):
        """All keys with types and contents, without what differs from one moment to the next."""
        return {key.decode(): self.content(key) for key in sorted(self.redis.keys("*"))}

    def content(self, key):
        kind = self.redis.type(key).decode()
        if kind == "hash":
            return kind, {k.decode(): plain(k.decode(), v.decode()) for k, v in self.redis.hgetall(key).items()}
        if kind == "list":
            return kind, [v.decode() for v in self.redis.lrange(key, 0, -1)]
        if kind == "set":
            return kind, sorted(v.decode() for v in self.redis.smembers(key))
        if kind == "zset":
            # Those of one millisecond are in no order.
            scores = [(m.decode(), plain("score", f"{s:.0f}")) for m, s in self.redis.zrange(key, 0, -1, withscores=True)]
            return kind, sorted(scores) if all(score == "T" for _, score in scores) else scores
        if kind == "stream":
            return kind, [{k.decode(): plain(k.decode(), v.decode()) for k, v in f.items()} for _, f in self.redis.xrange(key)]
        value = self.redis.get(key).decode()
        return kind, "token" if key.endswith(b":lock") else value, "expires" if self.redis.pttl(key) > 0 else "stays"


def plain(name, value):
    """Times become "T" (milliseconds) and "T*4096", JSON is read, traces are cut to their first lines."""
    if re.fullmatch(r"1[78]\d{11}(\.\d+)?", value):
        return "T"
    if re.fullmatch(r"7\d{15}", value):
        return "T*4096"
    if name == "stacktrace":
        return [trace.split("\n")[0] for trace in json.loads(value)]
    if name == "opts":
        return json.loads(value)
    return value


@pytest.fixture(params=["bullmq", "bullmq6"])
def bull(request, redis_server):
    made = Bull(redis_server, 3, request.param)
    yield made
    for peer in made.peers:
        peer.close()


# ---- adding -------------------------------------------------------------------------------------------------------------


ADDS = {
    "plain": ({}, []),
    "delay": ({"delay": 60000}, ["--delay", "1m"]),
    "no delay": ({"delay": 0}, ["--delay", "0"]),
    "attempts": ({"attempts": 5}, ["--attempts", "5"]),
    "fixed": ({"attempts": 3, "backoff": 500}, ["--attempts", "3", "--backoff", "fixed:500ms"]),
    "exponential": (
        {"attempts": 3, "backoff": {"type": "exponential", "delay": 1000, "jitter": 0.5}},
        ["--attempts", "3", "--backoff", "exponential:1s:0.5"],
    ),
    "priority": ({"priority": 7}, ["--priority", "7"]),
    "delayed priority": ({"priority": 7, "delay": 60000}, ["--priority", "7", "--delay", "1m"]),
    "lifo": ({"lifo": True}, ["--lifo"]),
    "own id": ({"jobId": "mine"}, ["--job-id", "mine"]),
    "remove": (
        {"removeOnComplete": True, "removeOnFail": 100},
        ["--remove-on-complete", "yes", "--remove-on-fail", "100"],
    ),
    "age": ({"removeOnComplete": {"age": 3600}}, ["--remove-on-complete", "1h"]),
    "logs": ({"keepLogs": 10}, ["--keep-logs", "10"]),
    "deduplication": ({"deduplication": {"id": "d"}}, ["--dedup", "d"]),
    "headers": ({"telemetry": {"metadata": '{"traceparent":"00-1"}'}}, ["--header", "traceparent=00-1"]),
}


def add_twice_each(new_bq, bull, name, paused=False):
    """What Redis holds when Node has added two jobs, and when we have."""
    options, arguments = ADDS[name]
    dumps = []
    peer = bull.peer()
    for side in ("node", "ours"):
        bull.redis.flushdb()
        peer.run(f"const q = new bullmq.Queue('orders', {{connection}}); await q.waitUntilReady(); {'await q.pause();' if paused else ''} await q.close()")
        for n in range(2):
            if side == "node":
                peer.run(f"await queue('orders').add({json.dumps(URN)}, {body(n)}, {json.dumps(options)})")
            else:
                new_bq(bull.url()).run("publish", "-q", "orders", "--raw", body(n), *arguments)
        dumps.append(bull.dump())
    return dumps


def same(node, ours):
    for _, job in [value for key, value in node.items() if re.fullmatch(PREFIX + r"(\d+|mine)", key)]:
        # A delay of 0 is none for us: it is not passed on.
        if job["opts"].get("delay") == 0:
            del job["opts"]["delay"]
    assert ours == node


@pytest.mark.parametrize("name", ADDS)
def test_what_adding_writes(new_bq, bull, name):
    same(*add_twice_each(new_bq, bull, name))


@pytest.mark.parametrize("name", ["plain", "priority", "lifo", "delay"])
def test_what_adding_to_a_paused_queue_writes(new_bq, bull, name):
    same(*add_twice_each(new_bq, bull, name, paused=True))


# ---- working ------------------------------------------------------------------------------------------------------------


# What the workers of both sides do with a job: its data ask for a result, for failures, for time.
COPROCESS = """
import json, sys, time
for line in sys.stdin:
    m = json.loads(line)
    want = m["envelope"].get("data") or {}
    time.sleep(want.get("sleep", 0) / 1000)
    if want.get("reject"):
        answer = {"error": want.get("message", "asked to"), "exception": "UnrecoverableError", "reject": True}
    elif want.get("fail", 0) > m["attempts"]:
        answer = {"error": want.get("message", "asked to"), "exception": "Error"}
    else:
        answer = {"ok": True, **({"result": want["result"]} if "result" in want else {})}
    print(json.dumps({"n": m["n"], **answer}, separators=(",", ":")), flush=True)
"""


@pytest.fixture
def handler(tmp_path):
    import sys

    script = tmp_path / "handler.py"
    script.write_text(COPROCESS)
    return ["--handle-stdio", f"{sys.executable} {script}"]


WORKS = {
    "completes": [({}, {})],
    "a result": [({"result": {"a": [1, "x"]}}, {})],
    "two": [({}, {}), ({}, {})],
    "fails": [({"fail": 9}, {})],
    "fails with attempts": [({"fail": 9}, {"attempts": 2})],
    "retried at once": [({"fail": 1}, {"attempts": 3})],
    "retried last in first out": [({"fail": 1}, {"attempts": 3, "lifo": True})],
    "retried later": [({"fail": 1}, {"attempts": 3, "backoff": 150})],
    "retried with a priority": [({"fail": 1}, {"attempts": 3, "priority": 4})],
    "exponential": [({"fail": 2}, {"attempts": 3, "backoff": {"type": "exponential", "delay": 50}})],
    "unrecoverable": [({"reject": True}, {"attempts": 3})],
    "trace limit": [({"fail": 3}, {"attempts": 4, "stackTraceLimit": 2})],
    "no trace": [({"fail": 1}, {"attempts": 4, "stackTraceLimit": 0})],
    "removed when completed": [({}, {"removeOnComplete": True})],
    "removed when failed": [({"fail": 9}, {"removeOnFail": True})],
    "the last two stay": [({}, {"removeOnComplete": 2})] * 4,
    "the last failed one stays": [({"fail": 9}, {"removeOnFail": {"count": 1}})] * 3,
    "an hour": [({}, {"removeOnComplete": {"age": 3600}})] * 2,
    "deduplicated": [({}, {"deduplication": {"id": "d"}})],
    "deduplicated for a time": [({}, {"deduplication": {"id": "d", "ttl": 60000}})],
    "priorities": [({}, {"priority": 5}), ({}, {"priority": 1}), ({}, {}), ({}, {"priority": 1})],
    "last in first out": [({}, {}), ({}, {"lifo": True})],
    "delayed": [({}, {"delay": 200})],
    "own id": [({}, {"jobId": "mine"})],
}


@pytest.mark.parametrize("name", WORKS)
def test_what_working_writes(new_bq, bull, handler, name):
    """The same jobs, worked by Node and by us: keys, fields and events are the same."""
    jobs, dumps = WORKS[name], []
    for side in ("node", "ours"):
        bull.redis.flushdb()
        peer = bull.peer()
        for n, (data, options) in enumerate(jobs):
            peer.run(f"await queue('orders').add({json.dumps(URN)}, {body(n, **data)}, {json.dumps(options)})")
        if side == "node":
            peer.run("""worker('orders', {}, async (job) => {
                const want = job.data.data;
                const error = want.reject ? new bullmq.UnrecoverableError('asked to') : new Error('asked to');
                if (want.reject || want.fail > job.attemptsMade) throw error;
                return want.result;
            })""")
            work = None
        else:
            work = new_bq(bull.url()).start("work", "-q", "orders", "--prefetch", 1, *handler)
        until(lambda: bull.events().count({"event": "drained"}) > 0 and idle(bull), 20, lambda: bull.dump())
        if work:
            work.stop()
        peer.close()
        # Who waits takes the marker away, sooner or later.
        bull.redis.delete(f"{PREFIX}marker", f"{PREFIX}stalled-check", f"{PREFIX}stalled")
        dumps.append(bull.dump())
    assert dumps[1] == dumps[0]


def idle(bull):
    return not any(bull.count(state) for state in ("wait", "paused", "active", "delayed", "prioritized"))


def test_headers_and_names_arrive(new_bq, bull):
    """Both ways: the job's name is the URN, its data the envelope byte for byte, headers are in the telemetry metadata."""
    bq, peer = new_bq(bull.url()), bull.peer()
    exact = body(0).replace('"n":0', '"n":9007199254740993,"x":1.0')
    bq.run("publish", "-q", "orders", "--raw", exact, "--header", "traceparent=00-1")
    peer.run("worker('orders', {}, async (job) => { ran.push([job.name, job.data.meta.id, job.opts.telemetry.metadata]) })")
    until(lambda: peer.run("return ran.length") == 1, 10, "Node's worker")
    assert peer.run("return ran[0]") == [URN, "id-0", '{"traceparent":"00-1"}']
    assert bull.job(1)["data"] == exact
    peer.close()
    peer = bull.peer()
    peer.run(f"await queue('orders').add('other', {body(1)}, {{telemetry: {{metadata: '{{\"tracestate\":\"a=1\"}}'}}}})")
    line = bq.run("work", "-q", "orders", "--print", "--max", 1, "--format", "full").json[0]
    assert line["body"] == body(1) and line["headers"] == {"tracestate": "a=1"}


def counts(bull):
    return bull.peer().run("return await queue('orders').getJobCounts()")


def test_paused_limited_and_crowded_queues(new_bq, bull):
    """Nothing is taken from a paused queue; the queue's own concurrency and rate limit are kept."""
    bq, peer = new_bq(bull.url()), bull.peer()
    peer.run("await queue('orders').pause()")
    for n in range(4):
        bq.run("publish", "-q", "orders", "--raw", body(n))
    work = bq.start("work", "-q", "orders", "--concurrency", 4, "--exec", "sleep 0.3")
    time.sleep(1)  # nothing is to happen
    assert bull.active() == 0 and bull.count("completed") == 0
    peer.run("await queue('orders').setGlobalConcurrency(2); await queue('orders').resume()")
    most = 0
    deadline = time.monotonic() + 20
    while bull.count("completed") < 4 and time.monotonic() < deadline:
        most = max(most, bull.active())
    assert bull.count("completed") == 4 and most == 2
    peer.run("await queue('orders').removeGlobalConcurrency(); await queue('orders').setGlobalRateLimit(2, 1000)")
    start = time.monotonic()
    for n in range(6):
        bq.run("publish", "-q", "orders", "--raw", body(n))
    until(lambda: bull.count("completed") == 10, 20, "the rest")
    assert time.monotonic() - start >= 1.5, "two a second"
    work.stop()
    assert bull.active() == 0


@pytest.mark.parametrize("who", ["ours", "node"])
def test_a_stalled_job_is_recovered_by_the_other_side(new_bq, bull, who):
    """Either worker is killed in the middle of a job; the other one handles it again, and the second time it is failed for
    good, as BullMQ's own."""
    ours = new_bq(bull.url(lock_duration="1s", stalled_interval="1s"))
    node_options = "{lockDuration: 1000, stalledInterval: 1000, lockRenewTime: 500}"
    peer, killed = bull.peer(), bull.peer()
    peer.run(f"await queue('orders').add({json.dumps(URN)}, {body(0, sleep=60000)})")

    def start():
        if who == "ours":
            return ours.start("work", "-q", "orders", "--exec", "sleep 60")
        killed.run(f"worker('orders', {node_options})")
        return killed

    victim = start()
    until(lambda: bull.active() == 1, 10, "a job in hand")
    victim.kill()
    if who == "ours":
        peer.run(f"worker('orders', {node_options}, async (job) => {{ ran.push(job.id) }})")
        until(lambda: bull.count("completed") == 1, 20, lambda: bull.dump())
    else:
        ours.run("work", "-q", "orders", "--exec", "true", "--max", 1, timeout=20)
        assert bull.count("completed") == 1
    assert bull.job(1)["stc"] == "1" and bull.job(1)["ats"] == "2" and bull.active() == 0
    assert [e["event"] for e in bull.events()].count("stalled") == 1


def test_a_job_that_stalls_too_often_fails(new_bq, bull):
    """By our check and by ours alone: it goes on to the failed set without a handler, with BullMQ's own words."""
    bq = new_bq(bull.url(lock_duration="1s", stalled_interval="1s"))
    bq.run("publish", "-q", "orders", "--raw", body(0))
    for turn in ("1", "2"):
        work = bq.start("work", "-q", "orders", "--exec", "sleep 60")
        until(lambda turn=turn: bull.job(1).get("ats") == turn, 20, "a job in hand")
        work.kill()
        until(lambda: not bull.redis.exists(f"{PREFIX}1:lock"), 10, "the end of its lock")
    work = bq.start("work", "-q", "orders", "--exec", "exit 9")
    until(lambda: bull.count("failed") == 1, 20, lambda: bull.dump())
    work.stop()
    job = bull.job(1)
    assert job["failedReason"] == "job stalled more than allowable limit" and job["stc"] == "2"
    assert "defa" not in job and bull.active() == 0 and not bull.redis.exists(f"{PREFIX}1:lock")
    assert counts(bull)["failed"] == 1


def test_deferred_failures_among_others(new_bq, bull):
    """What fails without being handled takes nothing from what is taken with it."""
    bq = new_bq(bull.url())
    for n in range(6):
        bq.run("publish", "-q", "orders", "--raw", body(n))
    for id in (1, 2, 4):
        bull.redis.hset(f"{PREFIX}{id}", "defa", "asked to")
    bq.run("work", "-q", "orders", "--exec", "true", "--drain")
    assert sorted(bull.redis.zrange(f"{PREFIX}failed", 0, -1)) == [b"1", b"2", b"4"]
    assert sorted(bull.redis.zrange(f"{PREFIX}completed", 0, -1)) == [b"3", b"5", b"6"]
    assert bull.active() == 0 and not bull.redis.keys(f"{PREFIX}*:lock")


def test_poison_fails_for_good(new_bq, bull):
    """Whatever its attempts say; with a dead-letter queue the record is a job there, under the same name."""
    bq, peer = new_bq(bull.url()), bull.peer()
    peer.run("await queue('orders').add('broken', {no: 'envelope'}, {attempts: 5})")
    work = bq.start("work", "-q", "orders", "--exec", "true", "--dlq")
    until(lambda: bull.count("failed") == 1, 10, lambda: bull.dump())
    work.stop()
    assert bull.job(1)["atm"] == "1" and "Undecodable BabelQueue body" in bull.job(1)["failedReason"]
    record = peer.run("return (await queue('orders.dlq').getJobs(['wait']))[0]")
    assert record["name"] == "broken" and record["data"]["dead_letter"]["reason"] == "poison"
    assert record["data"]["dead_letter"]["original_queue"] == "orders" and record["data"]["no"] == "envelope"


def test_a_flow(new_bq, bull, handler):
    """A parent waits for its children, whoever works them, and is worked then."""
    peer = bull.peer()
    peer.run(f"""
        const flow = keep(new bullmq.FlowProducer({{connection}}));
        await flow.add({{name: 'parent', queueName: 'orders', data: {body(0)},
            children: [1, 2].map((n) => ({{name: 'child', queueName: 'parts', data: {body(1, result=7)}}}))}})""")
    bq = new_bq(bull.url())
    assert bull.redis.zcard(f"{PREFIX}waiting-children") == 1
    bq.run("work", "-q", "parts", *handler, "--max", 2)
    parent = bull.redis.lindex(f"{PREFIX}wait", 0).decode()
    assert sorted(bull.redis.hvals(f"{PREFIX}{parent}:processed")) == [b"7", b"7"]
    peer.run("worker('orders', {}, async (job) => { ran.push(Object.values(await job.getChildrenValues())) })")
    until(lambda: peer.run("return ran") == [[7, 7]], 10, lambda: bull.dump())


# ---- bug reports from the field -----------------------------------------------------------------------------------------


def test_a_worker_goes_on_after_an_outage(new_bq, server, tmp_path):
    """Field, bullmq#4585: Redis is away for 20 s, longer than a worker blocks. It says so meanwhile, and takes the next job
    within 5 s of the server's return."""
    one = server("--appendonly", "yes", "--appendfsync", "always")
    bq = new_bq(f"bullmq://127.0.0.1:{one.port}/0?reconnect_max=2s")
    done = tmp_path / "done"
    work = bq.start("work", "-q", "orders", "--exec", f"echo x >>'{done}'")
    bq.run("publish", "-q", "orders", URN, "{}")
    until(done.exists, 10, "the first job")
    one.kill()
    work.until_err(rb"connection down", 5)
    time.sleep(20)  # the outage
    one.start()
    back = time.monotonic()
    bq.run("publish", "-q", "orders", URN, "{}")
    until(lambda: done.read_text() == "x\nx\n", 10, "the second job")
    assert time.monotonic() - back < 5
    work.until_err(rb"connected again", 1)
    work.stop()


@pytest.mark.parametrize("worker", ["node", "ours"])
def test_a_delayed_job_does_not_hide_the_next_one(new_bq, bull, worker, tmp_path):
    """Field, bullmq#2389: an idle worker, a job in 60 s, then one for now, which starts within a second."""
    bq, peer = new_bq(bull.url()), bull.peer()
    if worker == "node":
        peer.run("await worker('orders').waitUntilReady()")
    else:
        bq.start("work", "-q", "orders", "--exec", "true")
    until(lambda: b"bzpopmin" in {c["cmd"].encode() for c in bull.redis.client_list() if c["db"] == str(bull.db)}, 10, "an idle worker")
    if worker == "node":
        bq.run("publish", "-q", "orders", "--raw", body(0), "--delay", "60s")
        bq.run("publish", "-q", "orders", "--raw", body(1))
    else:
        peer.run(f"await queue('orders').add('x', {body(0)}, {{delay: 60000}}); await queue('orders').add('x', {body(1)})")
    added = time.monotonic()
    until(lambda: bull.count("completed") == 1, 5, "the job for now")
    assert time.monotonic() - added < 1
    assert bull.count("delayed") == 1
    # Whatever became of the marker of the delayed one, it is done when it is due.
    bull.redis.zadd(f"{PREFIX}delayed", {"1": (time.time() * 1000 - 1) * 4096})
    until(lambda: bull.count("completed") == 2, 15, "the delayed one")


@pytest.mark.parametrize("outcome", ["completes", "fails"])
def test_a_lost_lock_overwrites_nothing(new_bq, bull, outcome, tmp_path):
    """Field, bull#1416: the lock is somebody else's when the handler ends: the job's fields are not touched."""
    bq, go = new_bq(bull.url()), tmp_path / "go"
    bq.run("publish", "-q", "orders", "--raw", body(0), "--attempts", 3)
    work = bq.start(
        "work", "-q", "orders", "--exec", f"while [ ! -e '{go}' ]; do sleep 0.05; done; [ {outcome} = completes ]"
    )
    until(lambda: bull.active() == 1, 10, "the job in hand")
    bull.redis.set(f"{PREFIX}1:lock", "somebody else's", px=60000)
    before, events = bull.job(1), bull.events()
    go.touch()
    work.until_err(rb"lease.*lost|came too late", 10)
    work.stop()
    assert bull.job(1) == before and bull.events() == events
    assert bull.redis.get(f"{PREFIX}1:lock") == b"somebody else's" and bull.active() == 1


# ---- a mixed fleet ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_mixed_fleet(new_bq, bull, tmp_path):
    """Two workers of Node and two of ours over many jobs with failures, delays and kills: every job ends as its options
    say, nothing stays active, stalled or locked, and Node's counts and events are right."""
    import random
    import sys

    from support import build

    if bull.library != "bullmq":
        pytest.skip("expected: the fleet runs once, with version 5")
    count = build.scale("BQ_FLEET_JOBS", 20000)
    chance = random.Random(7)
    bq = new_bq(bull.url(lock_duration="2s", stalled_interval="1s", max_stalled=1000))
    script = tmp_path / "handler.py"
    script.write_text(COPROCESS)
    node_options = "{lockDuration: 2000, lockRenewTime: 1000, stalledInterval: 1000, maxStalledCount: 1000, concurrency: 8}"
    producer = bull.peer()

    def start(index):
        if index % 2:
            peer = bull.peer()
            peer.run(f"worker('orders', {node_options})")
            return peer
        return bq.start("work", "-q", "orders", "--concurrency", 8, "--handle-stdio", f"{sys.executable} {script}")

    want = {"completed": 0, "failed": 0}
    bulk = []
    for n in range(count):
        attempts, fail = chance.choice([(1, 0)] * 6 + [(3, 1), (3, 2), (2, 9), (1, 9)])
        want["completed" if fail < attempts else "failed"] += 1
        options = {"attempts": attempts}
        if chance.random() < 0.1:
            options["delay"] = chance.randrange(1, 3000)
        if attempts > 1 and chance.random() < 0.5:
            options["backoff"] = chance.choice([50, {"type": "exponential", "delay": 20}])
        if chance.random() < 0.05:
            options["priority"] = chance.randrange(1, 10)
        bulk.append({"name": URN, "data": json.loads(body(n, fail=fail, result=n)), "opts": options})
    counted = bull.peer()
    counted.run("globalThis.seen = await events('orders'); return 0")
    workers = [start(n) for n in range(4)]
    for at in range(0, count, 1000):
        producer.run(f"await queue('orders').addBulk({json.dumps(bulk[at : at + 1000])})")
        if at and at % 2000 == 0:
            victim = chance.randrange(4)
            workers[victim].kill()
            workers[victim] = start(victim)
    until(lambda: bull.count("completed") + bull.count("failed") == count, 240, lambda: {
        state: bull.count(state) for state in ("wait", "active", "delayed", "prioritized", "completed", "failed")})  # fmt: skip
    until(lambda: not bull.redis.keys(f"{PREFIX}*:lock") and bull.active() == 0, 20, "nothing active or locked")
    for index, one in enumerate(workers):
        one.stop() if index % 2 == 0 else one.close()
    got = producer.run("return await queue('orders').getJobCounts()")
    assert {state: n for state, n in got.items() if n} == want
    for at in range(0, count, 5000):
        for job in producer.run(
            f"return (await queue('orders').getJobs(['completed', 'failed'], {at}, {at + 4999}))"
            ".map((j) => [j.attemptsMade, j.opts.attempts, j.data.data.fail, j.returnvalue, j.data.data.n, j.failedReason])"
        ):
            made, attempts, fail, result, n, reason = job
            if fail < attempts:
                assert (made, result) == (fail + 1, n), job
            else:
                assert (made, reason) == (attempts, "asked to"), job
    assert not bull.redis.exists(f"{PREFIX}stalled") or bull.redis.scard(f"{PREFIX}stalled") == 0
    seen = counted.run("""const by = {};
        for (const e of globalThis.seen) if (e.event === 'completed' || e.event === 'failed') (by[e.event] ??= new Set()).add(e.jobId);
        return [by.completed?.size ?? 0, by.failed?.size ?? 0]""")
    assert seen == [want["completed"], want["failed"]]


# ---- replaying what failed ----------------------------------------------------------------------------------------------


def test_redrive_of_failed_jobs(new_bq, bull):
    """Field, bullmq#3555: attempts and stalls are counted anew, as Node does it when it is asked to reset them."""
    bq, peer = new_bq(bull.url()), bull.peer()
    bq.run("publish", "-q", "orders", "--raw", body(0), "--attempts", 2)
    bq.run("publish", "-q", "orders", "--raw", body(1))
    bq.run("publish", "-q", "orders", "--raw", "no envelope")
    bq.run("work", "-q", "orders", "--exec", "exit 1", "--drain")
    assert bull.count("failed") == 3 and bull.job(1)["atm"] == "2"
    bull.redis.hset(f"{PREFIX}1", "stc", 5)
    plan = bq.run("redrive", "-q", "orders", "--failed", "--dry-run").json
    assert {(line["id"], line["redriven"], line.get("skipped")) for line in plan} == {
        ("id-0", False, None), ("id-1", False, None), (None, False, "poison")}  # fmt: skip
    assert bull.count("failed") == 3
    bq.run("redrive", "-q", "orders", "--failed", "--id", "id-1")
    assert bull.count("failed") == 2 and [v.decode() for v in bull.redis.lrange(f"{PREFIX}wait", 0, -1)] == ["2"]
    bq.run("redrive", "-q", "orders", "--failed", "--older-than", "1h")
    assert bull.count("failed") == 2
    bq.run("redrive", "-q", "orders", "--failed")
    job = bull.job(1)
    assert not {"atm", "ats", "stc", "failedReason", "finishedOn", "processedOn"} & set(job)
    assert bull.count("failed") == 1 and bull.events()[-1] == {"event": "waiting", "jobId": "1", "prev": "failed"}
    peer.run("worker('orders', {}, async () => null)")
    until(lambda: bull.count("completed") == 2, 10, "Node works them")
    new_bq(bull.url()).run("redrive", "-q", "orders", "--failed", "--to", "other", exit=64)


def test_redrive_ends_when_jobs_fail_again(new_bq, bull):
    """Many, in pages, while a worker fails them again: each goes back once."""
    bq = new_bq(bull.url())
    lines = "".join(f'{{"n":{n}}}\n' for n in range(300))
    bq.run("publish", "-q", "orders", URN, "--lines", input=lines)
    work = bq.start("work", "-q", "orders", "--handle-stdio", "sed -u 's/^{\"n\":\\([0-9]*\\).*/{\"n\":\\1,\"error\":\"no\"}/'")
    until(lambda: bull.count("failed") == 300, 20, "all failed")
    done = bq.run("redrive", "-q", "orders", "--failed", timeout=60)
    assert len(done.lines) == 300
    until(lambda: bull.count("failed") == 300, 20, "all failed again")
    work.stop()


# ---- a cluster ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(server):
    """Three masters, each with a third of the slots."""
    from support.redisserver import free_port

    bus = [free_port() for _ in range(3)]
    nodes = [server("--cluster-enabled", "yes", "--cluster-port", str(port)) for port in bus]
    for n, node in enumerate(nodes):
        node.client().execute_command("CLUSTER", "ADDSLOTSRANGE", n * 5461, 16383 if n == 2 else n * 5461 + 5460)
        node.client().execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[0].port, bus[0])
    for node in nodes:
        until(lambda node=node: node.client().execute_command("CLUSTER INFO")["cluster_state"] == "ok", 30, "the cluster")
        until(lambda node=node: len(node.client().execute_command("CLUSTER NODES")) == 3, 30, "the nodes")
    return nodes


def home_of(nodes, key):
    slot = nodes[0].client().execute_command("CLUSTER", "KEYSLOT", key)
    return nodes[min(slot // 5461, 2)]


@pytest.mark.parametrize("at", range(3))
def test_a_cluster(new_bq, cluster, handler, at):
    """Field, bullmq#2660: a prefix with braces works on a cluster of three masters for every operation, whichever node the
    URL names."""
    bq = new_bq(f"bullmq://127.0.0.1:{cluster[at].port}/?prefix=%7Bbq%7D&reconnect_max=200ms")
    home = home_of(cluster, "{bq}")
    ids = bq.run("publish", "-q", "orders", URN, "--lines", input="".join(f'{{"n":{n}}}\n' for n in range(300))).out.split()
    assert len(set(ids)) == 300 and home.client().llen("{bq}:orders:wait") == 300
    bq.run("publish", "-q", "parts", URN, '{"fail":9}', "--attempts", 2, "--priority", 3)
    bq.run("publish", "-q", "orders", URN, "{}", "--delay", "1h")
    assert bq.run("queues").out.split() == [b"orders", b"parts"]
    assert bq.stats("orders")["ready"] == 300 and bq.stats("orders")["delayed"] == 1
    assert len(bq.peek("orders")) > 0
    work = bq.start("work", "-q", "orders", "-q", "parts", *handler)
    until(lambda: home.client().zcard("{bq}:orders:completed") == 300, 20, "the work")
    until(lambda: home.client().zcard("{bq}:parts:failed") == 1, 20, "the failure")
    # One that waits is woken.
    start = time.monotonic()
    bq.run("publish", "-q", "orders", URN, "{}")
    until(lambda: home.client().zcard("{bq}:orders:completed") == 301, 5, "one more")
    assert time.monotonic() - start < 2
    work.stop()
    assert len(bq.run("redrive", "-q", "parts", "--failed").lines) == 1
    assert home.client().zcard("{bq}:parts:failed") == 0
    bq.run("purge", "-q", "orders", "--yes")
    assert bq.stats("orders")["delayed"] == 0


def test_a_slot_that_moves(new_bq, cluster, tmp_path):
    """A queue's slot goes to another node under way: publisher and worker follow, nothing is lost."""
    key = "{bq}:orders:"
    slot, old = cluster[0].client().execute_command("CLUSTER", "KEYSLOT", key), home_of(cluster, key)
    new = next(node for node in cluster if node is not old)
    bq = new_bq(f"bullmq://127.0.0.1:{old.port}/?prefix=%7Bbq%7D&reconnect_max=200ms")
    done = tmp_path / "done"
    work = bq.start("work", "-q", "orders", "--exec", f"echo $BQ_ID >>'{done}'")
    ids = bq.run("publish", "-q", "orders", URN, "--lines", input="{}\n" * 50).out.decode().split()
    until(lambda: done.exists(), 10, "work")
    names = {node: node.client().execute_command("CLUSTER MYID") for node in (old, new)}
    new.client().execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", names[old])
    old.client().execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", names[new])
    while keys := old.client().execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
        old.client().execute_command("MIGRATE", "127.0.0.1", new.port, "", 0, 5000, "KEYS", *keys)
    for node in (new, old, *cluster):
        node.client().execute_command("CLUSTER", "SETSLOT", slot, "NODE", names[new])
    ids += bq.run("publish", "-q", "orders", URN, "--lines", input="{}\n" * 50).out.decode().split()
    until(lambda: set(done.read_text().split()) == set(ids), 30, lambda: f"all: {len(done.read_text().split())}")
    until(lambda: new.client().zcard(key + "completed") >= 100, 10, lambda: new.client().zcard(key + "completed"))
    work.stop()


def test_queues_on_several_nodes_are_told(new_bq, cluster):
    """Without braces the keys are anywhere: said at once, not tried for ever."""
    names = {}
    for n in range(100):
        names.setdefault(home_of(cluster, f"bull:q{n}:").port, f"q{n}")
    queues = [arg for name in names.values() for arg in ("-q", name)]
    assert len(names) == 3
    done = new_bq(f"bullmq://127.0.0.1:{cluster[0].port}/").run("work", *queues, "--print", exit=78, timeout=20)
    assert b"braces" in done.err or b"cluster" in done.err


def test_stats_count_as_node_does(new_bq, bull):
    bq, peer = new_bq(bull.url()), bull.peer()
    for n in range(3):
        bq.run("publish", "-q", "orders", "--raw", body(n, fail=9 if n else 0))
    peer.run("const w = worker('orders'); await new Promise((go) => w.on('drained', go)); await w.close()")
    bq.run("publish", "-q", "orders", "--raw", body(7))
    bq.run("publish", "-q", "orders", "--raw", body(8), "--priority", 2)
    bq.run("publish", "-q", "orders", "--raw", body(9), "--delay", "1h")
    stats = bq.stats("orders")
    counts = {name: n for name, n in peer.run("return await queue('orders').getJobCounts()").items() if n}
    assert {name: n for name, n in stats["states"].items() if n} == counts
    assert counts == {"completed": 1, "failed": 2, "waiting": 1, "prioritized": 1, "delayed": 1}
    assert (stats["ready"], stats["delayed"], stats["in_flight"], stats["dead"]) == (2, 1, 0, 2)


def test_events_are_trimmed(new_bq, bull):
    """To about so many as the URL says where the queue says nothing itself."""
    bq = new_bq(bull.url(max_events=100))
    bq.run("publish", "-q", "orders", URN, "--lines", input="{}\n" * 2000)
    bq.run("work", "-q", "orders", "--exec", "true", "--max", 20)
    assert bull.redis.hget(f"{PREFIX}meta", "opts.maxLenEvents") == b"100"
    assert bull.redis.xlen(f"{PREFIX}events") < 1000


def test_a_purge(new_bq, bull):
    """What waits goes, with what it kept from being added and what waited for it; the rest stays."""
    bq, peer = new_bq(bull.url()), bull.peer()
    bq.run("publish", "-q", "orders", "--raw", body(0))
    bq.run("work", "-q", "orders", "--exec", "true", "--max", 1)
    bq.run("publish", "-q", "orders", URN, "--lines", input="{}\n" * 6000)
    bq.run("publish", "-q", "orders", "--raw", body(1), "--dedup", "d")
    bq.run("publish", "-q", "orders", "--raw", body(2), "--delay", "1h")
    bq.run("publish", "-q", "orders", "--raw", body(3), "--priority", 2)
    peer.run(f"""await keep(new bullmq.FlowProducer({{connection}})).add({{name: 'parent', queueName: 'parents', data: {body(4)},
        children: [{{name: 'child', queueName: 'orders', data: {body(5)}}}]}})""")
    purged = bq.run("purge", "-q", "orders", "--yes")
    assert b"6004" in purged.out + purged.err
    assert bq.stats("orders")["states"] == {
        "waiting": 0, "paused": 0, "prioritized": 0, "delayed": 0, "active": 0, "failed": 0, "completed": 1, "waiting-children": 0,
    }  # fmt: skip
    bull.redis.delete(f"{PREFIX}marker", f"{PREFIX}stalled-check", f"{PREFIX}stalled")
    assert {key.decode()[len(PREFIX) :] for key in bull.redis.keys(f"{PREFIX}*")} == {"1", "completed", "events", "id", "meta"}
    assert bull.redis.llen("bull:parents:wait") == 1, "the parent waits for nobody"


def test_out_of_memory(new_bq, server, tmp_path):
    """noeviction: nothing is added, what completed is completed, and what would need room stays in hand and is retried
    when there is some again. Neither suffers from the other."""
    one = server("--maxmemory-policy", "noeviction")
    redis = one.client()
    bq = new_bq(f"bullmq://127.0.0.1:{one.port}/0?lock_duration=3s&stalled_interval=1s&max_stalled=100")
    for n in range(4):
        bq.run("publish", "-q", "orders", "--raw", body(n), "--attempts", 2)
    go = tmp_path / "go"
    work = bq.start(
        "work", "-q", "orders", "--concurrency", 4, "--exec",
        f"odd=$(($(tr -dc 0-9) % 2)); while [ ! -e '{go}'$odd ]; do sleep 0.05; done; [ $odd = 0 ] || [ $BQ_ATTEMPTS = 1 ]",
    )  # fmt: skip
    until(lambda: redis.llen(f"{PREFIX}active") == 4, 10, "four jobs in hand")
    redis.config_set("maxmemory", 1)
    assert bq.run("publish", "-q", "orders", URN, "{}", exit=None).code in (69, 75)
    (tmp_path / "go1").touch()
    work.until_err(rb"OOM", 10)
    assert redis.hget(f"{PREFIX}2", "atm") is None and redis.llen(f"{PREFIX}active") == 4
    (tmp_path / "go0").touch()
    until(lambda: redis.zcard(f"{PREFIX}completed") == 2, 10, "those that completed")
    assert redis.llen(f"{PREFIX}active") == 2
    redis.config_set("maxmemory", 0)
    until(lambda: redis.zcard(f"{PREFIX}completed") == 4, 30, lambda: work.err)
    work.stop()
    assert redis.llen(f"{PREFIX}active") == 0 and not redis.keys(f"{PREFIX}*:lock")
    assert redis.get(f"{PREFIX}id") == b"4"


def test_out_of_memory_in_a_batch(server):
    """One script settles several jobs: one that finds no room does not take the others with it, and changes nothing."""
    from pathlib import Path

    one = server("--maxmemory-policy", "noeviction")
    redis = one.client()
    lua = Path(__file__).resolve().parents[2] / "src/transport/redis/lua"

    def run(name, *arguments):
        text = (lua / "bull_common.lua").read_text() + (lua / f"bull_{name}.lua").read_text()
        return redis.eval(text, 1, PREFIX, "10000", *arguments)

    run("add", *["x", "{}", '{"attempts":3}', "0", "0", "0", "", "", "0"] * 3)
    taken = run("reserve", "3", "1000000", "30000", "a" * 24)[7:]
    (first, _, _, _, n1), (second, _, _, _, n2), (third, _, _, _, n3) = taken[1::2]
    tokens = ["a" * 24 + f"{n:08x}" for n in (n1, n2, n3)]
    before = redis.hgetall(f"{PREFIX}1")
    redis.config_set("maxmemory", 1)
    answer = run("settle", "30000", "n", first, tokens[0], "no", "Error: no", "0", "0.5", "e", third, tokens[2],
                 "a", second, tokens[1], "null")  # fmt: skip
    assert b"OOM" in answer[1] and b"OOM" in answer[2] and answer[3] == 1
    assert redis.hgetall(f"{PREFIX}1") == before and redis.get(f"{PREFIX}1:lock").decode() == tokens[0]
    assert redis.zrange(f"{PREFIX}completed", 0, -1) == [second] and not redis.exists(f"{PREFIX}2:lock")
    redis.config_set("maxmemory", 0)
    answer = run("settle", "30000", "n", first, tokens[0], "no", "Error: no", "0", "0.5", "a", first, tokens[0], "null")
    assert answer[1:] == [1, 0], "settled once"
    assert redis.hget(f"{PREFIX}1", "atm") == b"1" and redis.lrange(f"{PREFIX}wait", 0, -1) == [b"1"]


def test_a_graceful_close(new_bq, bull):
    """What was fetched ahead goes back in front, in its order and without an attempt; nothing stays active or locked."""
    bq = new_bq(bull.url())
    bq.run("publish", "-q", "orders", URN, "--lines", input="".join(f'{{"n":{n}}}\n' for n in range(30)))
    work = bq.start("work", "-q", "orders", "--prefetch", 16, "--exec", "sleep 0.3")
    until(lambda: bull.count("completed") > 0, 10, "a job done")
    work.stop()
    done = bull.count("completed")
    assert bull.active() == 0 and not bull.redis.keys(f"{PREFIX}*:lock")
    waiting = [int(id) for id in reversed(bull.redis.lrange(f"{PREFIX}wait", 0, -1))]
    assert waiting == list(range(done + 1, 31))
    assert all("atm" not in bull.job(id) for id in waiting)
