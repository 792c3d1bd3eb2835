"""Reports from the field about brokers' clients, JSON and command lines: one test for each that concerns the core, by its number.

    case                        where it is tested
    kamu-cli#1398               the outbox's issue: a relay selects rows by state
    debezium#4761               the outbox's issue: a malformed row is parked
    sidekiq-unique-jobs#339     the idempotency issue: running claims expire
    camel#22544                 the issues of RabbitMQ and AMQP 1.0, the first transports with binary and symbol values
    cJSON#151                   here
    cJSON#696                   here
    ds4#43                      here
    kcat#36                     here, and tests/chaos/test_disk_faults.py for a disk that fills up
    kcat#313                    here
"""

import json
import sqlite3
import subprocess
from contextlib import closing

import pytest

from support import build, judge, sqlitefile
from support.cli import environment
from support.judge import Block


def _body(data="{}", extra="", meta="", attempts="0"):
    return (
        f'{{"job":"urn:babel:orders:created","trace_id":"t","data":{data},"meta":{{"id":"m1","queue":"orders","lang":"c",'
        f'"schema_version":1,"created_at":1{meta}}},"attempts":{attempts}{extra}}}'
    ).encode()


def _on(bq, queue):
    return [m.body for m in sqlitefile.read(bq.url.removeprefix("sqlite:")) if m.queue == queue]


# ---- cJSON#151 ----------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_cjson_151_numbers_pass_byte_for_byte(new_bq):
    """1491926160718000000, 18446744073709551615 and 1e400 through publish, retry, dead letter and redrive."""
    bq = new_bq()
    numbers = '{"ns":1491926160718000000,"u64":18446744073709551615,"a":[1491926160718000000,1.0,-0,1E2]}'
    start = _body(numbers, ',"n":18446744073709551615,"huge":1e400', ',"huge":[1e400,1491926160718000000]')
    bq.run("publish", "-q", "orders", "--raw", input=start)
    assert _on(bq, "orders") == [start]
    bq.run("work", "-q", "orders", "--exec", "exit 1", "--max-attempts", 2, "--drain=all", exit=1)
    (record,) = _on(bq, "orders.dlq")
    cut = record.index(b',"dead_letter":')
    assert record[:cut] + b"}" == start.replace(b'"attempts":0', b'"attempts":2')
    bq.run("redrive", "-q", "orders")
    assert _on(bq, "orders") == [start]
    printed = bq.run("work", "-q", "orders", "--print", "--format", "data", "--drain")
    assert printed.lines == [numbers.encode()]


def test_cjson_151_published_data_is_not_reformatted(new_bq):
    """The same for data given to publish; 1e400 in data is no finite double: refused, not changed."""
    bq = new_bq()
    numbers = b'{"ns":1491926160718000000,"u64":18446744073709551615,"f":1.0}'
    bq.run("publish", "-q", "orders", "urn:x", "-", input=numbers)
    assert b'"data":' + numbers in _on(bq, "orders")[0]
    refused = bq.run("publish", "-q", "orders", "urn:x", '{"n":1e400}', exit=65)
    assert refused.err and not refused.out
    assert len(_on(bq, "orders")) == 1


def test_cjson_151_poison_keeps_its_numbers(new_bq):
    """1e400 in data of a received body is poison, and its record still holds every byte."""
    bq = new_bq()
    body = _body('{"n":1e400,"u64":18446744073709551615}')
    bq.run("publish", "-q", "orders", "--raw", input=body)
    bq.run("work", "-q", "orders", "--exec", "true", "--drain", exit=1)
    (record,) = _on(bq, "orders.dlq")
    assert record.startswith(body[:-1] + b',"dead_letter":{"reason":"poison"')


# ---- cJSON#696 ----------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_cjson_696_repeated_members():
    """Every occurrence is type-checked and the last one counts, `id` written \\u0069d included; a rewrite changes
    every occurrence of the member it replaces."""
    first_wrong = _body(meta=',"id":"m2"').replace(b'"id":"m1"', b'"id":5')
    last_wrong = _body(meta=',"id":5')
    spelled = _body(meta=',"\\u0069d":"m2"')
    spelled_wrong = _body(meta=',"\\u0069d":5')
    metas = _body(extra=',"meta":{"id":"m3","schema_version":1}')
    counts = _body(extra=',"att\\u0065mpts":4')
    jobs = _body(extra=',"\\u006aob":"urn:last"')
    wrong_count = _body(extra=',"attempts":"4"')
    bodies = [first_wrong, last_wrong, spelled, spelled_wrong, metas, counts, jobs, wrong_count]
    said = dict(zip(bodies, judge.judge(bodies, [7] * len(bodies), [Block(attempts=7)] * len(bodies))))
    assert [said[b].verdict for b in bodies] == [
        "poison/type", "poison/type", "ok", "poison/type", "ok", "ok", "ok", "poison/type"
    ]  # fmt: skip
    assert said[spelled].id == b"m2"
    assert said[metas].id == b"m3"
    assert said[jobs].urn == b"urn:last"
    assert said[counts].attempts == 4
    assert said[counts].retry == counts.replace(b'"attempts":0', b'"attempts":7').replace(b':4', b":7")
    assert said[counts].redrive == counts.replace(b":4", b":0")
    assert said[counts].record.startswith(said[counts].retry[:-1] + b',"dead_letter":{')


def test_cjson_696_repeated_members_through_a_queue(new_bq):
    """The same through a worker: the handler sees the last one, and the retried body has the new count twice."""
    bq = new_bq()
    body = _body(extra=',"attempts":1', meta=',"\\u0069d":"m2"')
    bq.run("publish", "-q", "orders", "--raw", input=body)
    done = bq.run(
        "work", "-q", "orders", "--exec", 'echo "$BQ_ID $BQ_ATTEMPTS"; exit 1', "--retry-backoff", "1h", "--drain"
    )
    assert done.lines == [b"m2 1"]
    assert _on(bq, "orders") == [body.replace(b'"attempts":0', b'"attempts":2').replace(b'"attempts":1', b'"attempts":2')]


# ---- ds4#43 -------------------------------------------------------------------------------------------------------------


def _small_stack(tmp_path, body, kib):
    path = tmp_path / "body"
    path.write_bytes(body)
    done = subprocess.run(
        [build.tool("small_stack"), str(kib), path], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, f"status {done.returncode}: {done.stdout}{done.stderr}"
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


@pytest.mark.smoke
@pytest.mark.parametrize("opener", ["[", '{"a":', '[{"x":', "[1,["])
def test_ds4_43_a_million_brackets_on_a_small_stack(tmp_path, opener):
    """One million `[` inside an unknown field: an error and no crash, on a thread stack of 128 KiB; the same for
    free and print."""
    said = _small_stack(tmp_path, b'{"job":"u","unknown":' + opener.encode() * 1_000_000, 128)
    assert said["decode"] == "poison/json"
    assert said["reason"]
    assert (said["retry"], said["record"], said["redrive"]) == ("DATA", "DATA", "DATA")
    assert said["poison record"] == "OK"
    assert (said["parse"], said["print"], said["free"]) == ("DATA", "DATA", "OK")


@pytest.mark.parametrize("closed", ["[]", "{}"])
def test_ds4_43_the_limit_of_nesting_on_a_small_stack(tmp_path, closed):
    """Contract 2: 10,000 nested containers pass, 10,001 are too deep: read, written again and printed on 128 KiB."""

    def deep(count):
        inner = "[" * count + "]" * count if closed == "[]" else '{"a":' * (count - 1) + "{}" + "}" * (count - 1)
        return _body(extra=f',"unknown":{inner}')

    said = _small_stack(tmp_path, deep(9_999), 128)  # the root is one of them
    assert said["decode"] == "ok"
    assert (said["retry"], said["record"], said["redrive"], said["poison record"]) == ("OK", "OK", "OK", "OK")
    assert (said["parse"], said["members"], said["print"], said["free"]) == ("OK", "6", "OK", "OK")
    said = _small_stack(tmp_path, deep(10_000), 128)
    assert said["decode"] == "poison/json"
    assert (said["parse"], said["print"]) == ("DATA", "DATA")


def test_ds4_43_a_million_brackets_through_a_queue(new_bq):
    """The command does not fall over it either: it is poison, kept whole."""
    bq = new_bq()
    body = b'{"job":"u","unknown":' + b"[" * 1_000_000
    bq.run("publish", "-q", "orders", "--raw", input=body)
    bq.run("work", "-q", "orders", "--exec", "true", "--drain", exit=1)
    (record,) = _on(bq, "orders.dlq")
    assert json.loads(record)["raw"].encode() == body
    assert bq.run("inspect", "-", input=body, exit=65).json[0]["verdict"] == "poison/json"


# ---- kcat#36 ------------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_kcat_36_a_line_that_is_not_delivered_is_no_success(new_bq):
    """Bad lines among good ones: their numbers and the counts on stderr, exit 1, the good ones delivered in order."""
    bq = new_bq()
    lines = ['{"n":1}', "not json", '{"n":2}', "[]", "", '{"n":1e400}', '{"n":3}']
    done = bq.run("publish", "-q", "orders", "--lines", "urn:x", input="\n".join(lines) + "\n", exit=1)
    assert len(done.lines) == 3
    for number in ("2", "4", "6"):
        assert number in done.err.decode(), done
    assert [json.loads(b)["data"]["n"] for b in _on(bq, "orders")] == [1, 2, 3]
    assert [json.loads(b)["meta"]["id"] for b in _on(bq, "orders")] == done.out.decode().split()
    last = done.err.decode().strip().splitlines()[-1]
    assert "3" in last, f"no counts: {last}"


def test_kcat_36_messages_that_the_broker_did_not_take(tmp_path, new_bq):
    """A file that stays locked: nothing printed, non-zero, and how many were not delivered."""
    bq = new_bq(f"sqlite:{tmp_path / 'bq.db'}?busy_timeout=200ms")
    bq.run("publish", "-q", "orders", "urn:x", "{}")
    with closing(sqlite3.connect(tmp_path / "bq.db", isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        done = bq.run(
            "publish", "-q", "orders", "--lines", "--timeout", "1s", "urn:x", input='{"n":1}\n' * 20, exit=None
        )
        db.execute("ROLLBACK")
    assert done.code in (1, 75), done
    assert not done.out and b"20" in done.err
    assert len(sqlitefile.read(tmp_path / "bq.db")) == 1


# ---- kcat#313 -----------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize("drain", ["--drain", "--drain=all"])
@pytest.mark.parametrize("url", ["sqlite", "memory"])
def test_kcat_313_drain_ends(tmp_path, new_bq, drain, url):
    """Drain mode ends with 0 on every transport, empty and unknown queues included, several queues too."""
    bq = new_bq("memory:x" if url == "memory" else None)
    for queues in (["-q", "none"], ["-q", "none", "-q", "nor this"]):
        done = bq.run("work", *queues, "--exec", "true", drain, timeout=20)
        assert b"handled" in done.err or b"0" in done.err
    if url == "sqlite":
        bq.run("publish", "-q", "orders", "--lines", "urn:x", input='{"n":1}\n' * 50)
        ran = bq.run("work", "-q", "none", "-q", "orders", "--exec", "echo x", "--concurrency", 4, drain, timeout=30)
        assert len(ran.lines) == 50
        bq.run("work", "-q", "orders", "--print", drain, timeout=20)


def test_kcat_313_drain_and_delayed_messages(new_bq):
    """--drain does not wait for delayed messages, --drain=all does."""
    bq = new_bq()
    bq.run("publish", "-q", "orders", "urn:x", "{}", "--delay", "1500ms")
    assert bq.run("work", "-q", "orders", "--exec", "echo x", "--drain", timeout=20).lines == []
    assert bq.stats("orders")["delayed"] == 1
    assert bq.run("work", "-q", "orders", "--exec", "echo x", "--drain=all", timeout=20).lines == [b"x"]
