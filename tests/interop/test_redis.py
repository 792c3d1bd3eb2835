"""bq and the Python peer on one Redis server, both layouts (contract 7.1, 7.2): each works what the other published,
retries and dead-letters it, takes over what the other abandoned, redrives what the other buried."""

import json
import re

import pytest
from babelqueue import BabelQueue, EnvelopeCodec
from babelqueue.redrive import redrive

from support.wait import until

URN = "urn:babel:orders:created"
ODD = {
    "id": 1042,
    "big": 18446744073709551615,
    "price": 1.0,
    "text": "grüße ✓ \u2028 / \" \\ \n",
    "empty": {},
    "none": None,
    "list": [1, [2, {"x": []}]],
}
POISON = [b"not json", b"\xff\xfe\x00", b"[1,2]", b"null", b"", b'{"job":"urn:x","attempts":"x"}', b'{"data":{}}', b'{"job":5}']


def app(layout, **options):
    client = BabelQueue(transport=layout.peer(), queue="orders", **options)
    client.handled = []

    @client.handler(URN)
    def handle(data, meta):
        client.handled.append((data, meta))

    return client


def rows(done):
    return [json.loads(line) for line in done.out.splitlines()]


# ---- publish and consume --------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_the_peer_publishes_and_bq_works(new_bq, layout):
    client = app(layout)
    ids = [client.publish(URN, {**ODD, "n": n}, queue="orders") for n in range(50)]
    stored = layout.ready()
    done = new_bq(layout.url()).run("work", "-q", "orders", "--print", "--drain", "--concurrency", "4")
    assert sorted(done.out.splitlines()) == sorted(stored), "the bodies are the stored bytes"
    assert sorted(json.loads(body)["meta"]["id"] for body in done.out.splitlines()) == sorted(ids)
    assert layout.leftovers() == [] and layout.ready() == []


@pytest.mark.smoke
def test_bq_publishes_and_the_peer_works(new_bq, layout):
    bq = new_bq(layout.url())
    lines = "".join(json.dumps({**ODD, "n": n}) + "\n" for n in range(50))
    ids = bq.run("publish", "-q", "orders", URN, "--lines", input=lines).out.decode().split()
    for body in layout.ready():
        assert EnvelopeCodec.poison_cause(body.decode()) is None
        assert EnvelopeCodec.accepts(EnvelopeCodec.decode(body.decode()))
    client = app(layout)
    assert client.consume(max_messages=50, timeout=1, handle_signals=False) == 50
    assert [data["n"] for data, _ in client.handled] == list(range(50))
    assert [meta["id"] for _, meta in client.handled] == ids
    assert client.handled[0][0]["big"] == ODD["big"] and client.handled[0][0]["text"] == ODD["text"]
    assert layout.leftovers() == [] and layout.ready() == []


def test_headers_travel_both_ways(new_bq, list_layout):
    """Contract 7.1: the frame. bq writes the very bytes that the peer writes."""
    bq = new_bq(list_layout.url())
    headers = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "grüß": 'a "✓" \\ \n'}
    app(list_layout).publish_with_headers(URN, ODD, headers=headers, queue="orders")
    [full] = rows(bq.run("work", "-q", "orders", "--print", "--format", "full", "--drain"))
    assert full["headers"] == headers
    flags = [f"--header={k}={v}" for k, v in headers.items() if "\n" not in v]
    bq.run("publish", "-q", "orders", *flags, URN, "{}")
    [element] = list_layout.ready()
    message = list_layout.peer().pop("orders", 1)
    assert message.headers == {k: v for k, v in headers.items() if "\n" not in v}
    from babelqueue.redis_transport import _frame_value

    assert _frame_value(message.body, message.headers).encode() == element


def test_laravel_drops_headers(new_bq, redis_server):
    from support.redisserver import Layout

    redis_server.client().flushall()
    layout = Layout(redis_server, "laravel")
    new_bq(layout.url()).run("publish", "-q", "orders", "--header", "k=v", URN, "{}")
    [job] = layout.ready()
    assert json.loads(job)["job"] == URN and b"__bq_frame" not in job
    assert layout.redis.lrange("queues:orders:notify", 0, -1) == [b"1"]


# ---- retries and dead letters ------------------------------------------------------------------------------------------------


def test_attempts_are_counted_across_both(new_bq, layout):
    """One failed attempt here, one there, the third here: dead-lettered with attempts 3."""
    bq = new_bq(layout.url())
    client = app(layout, max_attempts=3, dead_letter=True)

    @client.handler(URN)
    def fail(data, meta):
        raise RuntimeError("no")

    bq.run("publish", "-q", "orders", URN, '{"n":1}')
    bq.run("work", "-q", "orders", "--exec", "exit 3", "--max", "1", "--retry-backoff", "0")
    layout.make_due()
    assert client.consume(max_messages=1, timeout=2, handle_signals=False) == 1
    layout.make_due()
    bq.run("work", "-q", "orders", "--exec", "echo broken >&2; exit 3", "--max", "1", exit=1)
    [record] = layout.ready("orders.dlq")
    said = json.loads(record)
    assert said["attempts"] == 3 and list(said)[-1] == "dead_letter"
    assert said["dead_letter"]["attempts"] == 3 and said["dead_letter"]["reason"] == "failed"
    assert said["dead_letter"]["error"] == "broken" and said["dead_letter"]["original_queue"] == "orders"
    assert layout.leftovers() == [] and layout.ready() == []


@pytest.mark.parametrize("dlq", [[], ["--no-dlq"], ["--unknown", "delete"]])
def test_poison_records_are_the_peers_bytes(new_bq, layout, dlq):
    """Contract 4 and 7.1: poison is buried in every configuration, with the bytes that the peer writes."""
    bq = new_bq(layout.url())
    for body in POISON:
        bq.run("publish", "-q", "orders", "--raw", input=body)
    bq.run("work", "-q", "orders", "--exec", "true", "--drain", *dlq, exit=None)
    ours = layout.ready("orders.dlq")
    layout.redis.flushdb()
    for body in POISON:
        layout.redis.rpush(layout.ready_key("orders"), body)
    client = app(layout)
    client.consume(max_messages=len(POISON), timeout=0.3, handle_signals=False)
    theirs = layout.ready("orders.dlq")
    assert len(ours) == len(theirs) == len(POISON)

    # What the contract leaves to each side: when, in which language, and how a parser puts what is wrong.
    def fixed(record):
        record = re.sub(rb'"failed_at":\d+', b'"failed_at":0', record)
        record = re.sub(rb'"lang":"(c|python)"}}$', b'"lang":""}}', record)
        return re.sub(rb'("error":"[^":\\]*)(?:[^"\\]|\\.)*"', rb'\1"', record)

    assert sorted(map(fixed, ours)) == sorted(map(fixed, theirs))


def test_each_redrives_what_the_other_buried(new_bq, layout):
    bq = new_bq(layout.url())
    bq.run("publish", "-q", "orders", URN, '{"n":1}')
    [body] = layout.ready()
    bq.run("work", "-q", "orders", "--exec", "exit 65", "--drain", exit=1)
    result = redrive(layout.peer(), "orders.dlq", timeout=0.1)
    assert result.redriven == 1
    assert layout.ready() == [body], "the bytes it was published with"
    client = app(layout, max_attempts=1, dead_letter=True)

    @client.handler(URN)
    def fail(data, meta):
        raise RuntimeError("no")

    client.consume(max_messages=1, timeout=1, handle_signals=False)
    assert len(layout.ready("orders.dlq")) == 1
    bq.run("redrive", "-q", "orders")
    assert layout.ready() == [body]
    assert layout.ready("orders.dlq") == [] and layout.leftovers("orders.dlq") == []


# ---- abandoned ----------------------------------------------------------------------------------------------------------------


def test_bq_takes_over_what_the_peer_abandoned(new_bq, layout):
    client = app(layout)
    client.publish(URN, ODD, queue="orders")
    [body] = layout.ready()
    assert layout.peer().pop("orders", 1) is not None
    assert layout.ready() == []
    bq = new_bq(layout.url())
    worker = bq.start("work", "-q", "orders", "--print", "--max", "1")
    until(lambda: bq.stats("orders")["in_flight"] == 1, 5, "it is in flight")
    assert worker.out == b""
    layout.expire_reservations()
    done = worker.wait()
    came = json.loads(done.out)
    assert came["attempts"] == (0 if layout.name == "list" else 1), "Laravel's reservation counts (7.2)"
    if layout.name == "list":
        assert done.out.rstrip(b"\n") == body
    assert layout.leftovers() == []


def test_the_peer_takes_over_what_bq_abandoned(new_bq, layout):
    bq = new_bq(layout.url())
    bq.run("publish", "-q", "orders", URN, json.dumps(ODD))
    [body] = layout.ready()
    worker = bq.start("work", "-q", "orders", "--exec", "sleep 60")
    until(layout.reserved, 10, "its reservation")
    worker.kill()
    layout.expire_reservations()
    message = layout.peer().pop("orders", 2)
    expected = body if layout.name == "list" else body.replace(b'"attempts":0}', b'"attempts":1}')
    assert message.body.encode() == expected, "byte for byte: no integer was rounded (7.2)"


def test_delays_are_honoured_by_either(new_bq, layout):
    bq = new_bq(layout.url())
    bq.run("publish", "-q", "orders", "--delay", "1h", URN, '{"n":1}')
    assert bq.stats("orders") == {"queue": "orders", "ready": 0, "delayed": 1, "in_flight": 0, "dead": 0}
    assert layout.peer().pop("orders", 0) is None
    layout.make_due()
    message = layout.peer().pop("orders", 1)
    assert json.loads(message.body)["data"] == {"n": 1}
    layout.peer().ack(message)
    if layout.name == "laravel":
        layout.peer().publish_delayed("orders", message.body, 3600)
        assert bq.stats("orders")["delayed"] == 1
        layout.make_due()
        done = bq.run("work", "-q", "orders", "--print", "--max", "1")
        assert done.out.decode().rstrip("\n") == message.body


def test_a_late_settlement_touches_nothing(new_bq, layout):
    """Both ways: whose lease ran out can neither acknowledge nor bury what somebody else has now."""
    bq = new_bq(layout.url())
    client = app(layout)
    client.publish(URN, {"n": 1}, queue="orders")
    stale = layout.peer().pop("orders", 1)
    layout.expire_reservations()
    worker = bq.start("work", "-q", "orders", "--exec", "sleep 2", "--max", "1")
    until(lambda: bq.stats("orders")["in_flight"] == 1, 10, "its reservation")
    layout.peer().dead_letter(stale, "orders.dlq", "{}")
    layout.peer().ack(stale)
    assert len(layout.reserved()) == 1 and layout.ready("orders.dlq") == []
    worker.wait()
    assert layout.leftovers() == []
