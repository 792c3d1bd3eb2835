"""One hundred thousand messages in the hands of others, or delayed, in the same queue: the server walks `:processing` to
take an element out and serves nobody meanwhile, so how far it walks is bounded. Measured by the server's slow log, in
units of one walk over the whole list on the same server."""

import re

import pytest

from support.redisserver import URN, publish
from support.wait import until

CROWD = 100_000
# Elements with a deadline far away, as another worker's reservations have it.
FILL = """
for i = 1, tonumber(ARGV[1]) do
    local raw = ARGV[2] .. string.format('%08d', i) .. string.rep('x', 340)
    redis.call('RPUSH', KEYS[1], raw)
    redis.call('ZADD', KEYS[1] .. ':deadlines', 9e9 + i, string.format('1%031x', i) .. ':' .. raw)
end"""
HELD = 5


@pytest.fixture
def crowded(server):
    return server("--slowlog-log-slower-than", "0", "--slowlog-max-len", "20000")


def fill(one, count, mark):
    if count:
        one.client(socket_timeout=60).eval(FILL, 1, "orders:processing", count, mark)


def walk(one):
    """Microseconds that a walk over the whole list takes: the shortest of some."""
    client = one.client(socket_timeout=60)
    client.slowlog_reset()
    for _ in range(5):
        client.lrem("orders:processing", 1, "nothing like it")
    return min(entry["duration"] for entry in client.slowlog_get(20) if entry["command"].startswith(b"LREM"))


def others(one):
    """What others hold."""
    return sorted(raw for raw in one.client().lrange("orders:processing", 0, -1) if not raw.startswith(b"{"))


def scripts(one, pattern):
    """How long each script ran whose arguments look like that."""
    return [entry["duration"] for entry in one.client().slowlog_get(20000) if re.match(pattern, entry["command"])]


def acknowledge_in_a_crowd(new_bq, one, tmp_path, place, meanwhile=lambda client: None):
    """A worker holds a few messages behind that many; more come behind them, and they are acknowledged one by one. How
    long the shortest took, and a walk over the whole list."""
    bq = new_bq(one.url())
    fill(one, place, "before")
    publish(bq, HELD)
    handler = f"n=$(tr -dc 0-9); while [ ! -e '{tmp_path}/go'$n ]; do sleep 0.05; done"
    worker = bq.start("work", "-q", "orders", "--concurrency", HELD, "--exec", handler)
    client = one.client()
    until(lambda: client.llen("orders:processing") == place + HELD, 20, "the reservations")
    fill(one, CROWD - place, "behind")
    meanwhile(client)
    before, whole = others(one), walk(one)
    client.slowlog_reset()
    for left in reversed(range(HELD)):
        (tmp_path / f"go{left}").touch()
        until(lambda left=left: client.llen("orders:processing") == len(before) + left, 20, "an acknowledge")
    worker.stop()
    took = scripts(one, rb"EVALSHA \w+ 4 orders orders:processing \S+ \S+ \w{8} \S+ a ")
    assert len(took) == HELD
    assert others(one) == before, "what others hold is all there"
    return min(took), whole


@pytest.mark.parametrize("place", [300, CROWD // 4, CROWD // 2, CROWD * 3 // 4, CROWD - 10])
def test_an_acknowledge_in_a_crowd(new_bq, crowded, tmp_path, place):
    """Wherever an element stands: near the ends little is walked, deeper in nothing."""
    took, whole = acknowledge_in_a_crowd(new_bq, crowded, tmp_path, place)
    assert took < whole / 5


@pytest.mark.parametrize("place", [CROWD // 10, CROWD * 9 // 10])
def test_an_acknowledge_in_a_crowd_that_moved(new_bq, crowded, tmp_path, place):
    """Others in front have gone meanwhile: it is looked for from the nearer end, a tenth of the list instead of nine."""
    took, whole = acknowledge_in_a_crowd(new_bq, crowded, tmp_path, place, lambda c: c.lpop("orders:processing", 500))
    assert took < whole * 0.6


def test_delayed_messages_in_a_crowd(new_bq, crowded):
    """Many that become due at once are given back a few at a time: nobody waits long for the server."""
    bq = new_bq(crowded.url())
    fill(crowded, CROWD // 2, "before")
    due = 200
    bq.run("publish", "-q", "orders", "--delay", "1h", URN, "--lines", input="{}\n" * due)
    client = crowded.client()
    parked = [member for member, _ in client.zscan_iter("orders:processing:deadlines", match="00000000*", count=10000)]
    assert len(parked) == due
    fill(crowded, CROWD // 2, "behind")
    client.zadd("orders:processing:deadlines", {member: 1 for member in parked})
    whole = walk(crowded)
    client.slowlog_reset()
    bq.run("work", "-q", "orders", "--print", "--max", due, timeout=60)
    longest = max(scripts(crowded, rb"EVALSHA \w+ 4 orders orders:processing "))
    assert longest < 10 * whole, f"of {whole} us for the whole list"
