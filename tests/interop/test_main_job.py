"""The main job on real input: what the peer encoded is published, worked, retried, dead-lettered, looked at and
redriven on SQLite, with its bytes compared at every step; and what bq publishes, the peer accepts."""

import json
import re
import shlex
import sys
import time
import uuid

import pytest
from babelqueue import BabelQueue, EnvelopeCodec

from support import judge, peer, reference, samples, sqlitefile
from support.bodies import Maker
from support.judge import Block
from support.wait import until


def _bodies(bq, queue="orders"):
    """The bodies on a queue, byte for byte: peek prints one a line, and a body may have lines of its own."""
    path = bq.url.removeprefix("sqlite:").split("?")[0]
    return [m.body for m in sqlitefile.read(path) if m.queue == queue]


def _publish(bq, bodies, queue="orders"):
    for body in bodies:
        bq.run("publish", "-q", queue, "--raw", input=body)


# ---- publishing ---------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_raw_bodies_are_published_byte_for_byte(new_bq):
    """--raw sends a body as it is, whatever it is; --raw --lines does so for a body a line, and prints the ids."""
    bq = new_bq()
    fixtures = [body for _, body, _ in samples.fixtures()] + [path.read_bytes() for path in samples.public_fixtures()]
    others = [b"not json", b"\xff\xfe", b"{}", b"null", '"\u2028"'.encode()]
    _publish(bq, fixtures + others)
    assert _bodies(bq) == fixtures + others
    encoded = samples.encoded(50)
    done = bq.run("publish", "-q", "lines", "--raw", "--lines", input=b"\n".join(encoded) + b"\n")
    assert done.out.decode().split() == [json.loads(body)["meta"]["id"] for body in encoded]
    assert _bodies(bq, "lines") == encoded
    assert bq.peek("lines") == encoded


def test_inspect_says_what_the_peer_says(new_bq, tmp_path):
    """Contract 2: `bq inspect` of files and of lines gives the peer's verdict, identity and members."""
    bq = new_bq()
    cases = samples.fixtures()
    files = []
    for index, (_name, body, _verdict) in enumerate(cases):
        files.append(tmp_path / f"{index}.json")
        files[-1].write_bytes(body)
    done = bq.run("inspect", *files, exit=65)
    for said, (name, body, verdict) in zip(done.json, cases):
        assert said["verdict"] == verdict == peer.verdict(body)[0], name
        envelope = EnvelopeCodec.decode_lenient(peer.text_of(body))
        if verdict != "poison/identity":
            assert said["urn"] == peer.identity(body), name
        for member in ("id", "queue", "lang", "schema_version", "created_at"):
            assert said[member] == envelope["meta"][member], name
        assert (said["trace_id"], said["attempts"]) == (envelope["trace_id"], envelope["attempts"]), name
        assert said["dead_letter"] == envelope.get("dead_letter"), name
    encoded = samples.encoded(200)
    done = bq.run("inspect", "--lines", "-", input=b"\n".join(encoded) + b"\n")
    assert [said["verdict"] for said in done.json] == ["ok"] * 200
    assert [said["urn"] for said in done.json] == [peer.identity(body) for body in encoded]


def test_what_bq_publishes_the_peer_accepts(new_bq):
    """Contract 1: decoded and accepted by the peer, in its canonical bytes, with the members that were asked for."""
    bq = new_bq()
    datas = [
        {}, {"order": 1}, {"s": 'quote " back \\ / \b\f\n\r\t\x00\x1f\x7f', "u": "Привет ☕ \U0001f600\u2028"},
        {"n": [0, -1, 1.5, 2**53, 2**64, 1e300], "deep": {"a": {"b": [{}]}}, "": None, "t": True},
    ]  # fmt: skip
    before = int(time.time() * 1000)
    for data in datas:
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        id = bq.run("publish", "-q", "orders", "urn:babel:orders:créé", "-", input=text).out.decode().strip()
        body = _bodies(bq)[-1]
        assert peer.verdict(body) == ("ok", None)
        envelope = EnvelopeCodec.decode(body.decode("utf-8"))
        assert EnvelopeCodec.encode(envelope).encode("utf-8") == body
        assert envelope["job"] == "urn:babel:orders:créé"
        assert envelope["data"] == data
        assert envelope["meta"]["id"] == id == str(uuid.UUID(id, version=4))
        assert (envelope["meta"]["queue"], envelope["meta"]["lang"], envelope["attempts"]) == ("orders", "c", 0)
        assert before <= envelope["meta"]["created_at"] <= int(time.time() * 1000)
        assert list(envelope["meta"]) == ["id", "queue", "lang", "schema_version", "created_at"]
        assert list(envelope) == ["job", "trace_id", "data", "meta", "attempts"]
    bq.run("publish", "-q", "orders", "urn:x", "{}", "--trace-id", " chain-1 ", "--lang", "go")
    envelope = EnvelopeCodec.decode(_bodies(bq)[-1].decode())
    assert (envelope["trace_id"], envelope["meta"]["lang"]) == ("chain-1", "go")


def test_what_bq_publishes_the_peer_works(new_bq):
    """A handler of the peer's own runtime gets the data and meta that bq published."""
    bq = new_bq()
    bq.run("publish", "-q", "orders", "--lines", "urn:babel:orders:created", input='{"n":1}\n{"n":2,"s":"é"}\n')
    app = BabelQueue("memory://", queue="orders")
    got = []
    app.handler("urn:babel:orders:created")(lambda data, meta: got.append((data, meta["id"])))
    for body in _bodies(bq):
        app.transport.publish("orders", body.decode("utf-8"))
        app.dispatch(app.transport.pop("orders"))
    ids = [json.loads(body)["meta"]["id"] for body in _bodies(bq)]
    assert got == [({"n": 1}, ids[0]), ({"n": 2, "s": "é"}, ids[1])]


# ---- handlers -----------------------------------------------------------------------------------------------------------


def test_shell_handlers_get_the_message(new_bq, tmp_path):
    """bq-work(1): the data on standard input and the whole body in BQ_ENVELOPE_FILE, byte for byte; the members in
    the environment."""
    bq = new_bq()
    bodies = samples.encoded(12) + [body for _, body, verdict in samples.fixtures() if verdict == "ok"]
    _publish(bq, bodies)
    handler = (
        f'd=$(mktemp -d {shlex.quote(str(tmp_path))}/got-XXXXXX); cat >"$d/data"; cat "$BQ_ENVELOPE_FILE" >"$d/body"; '
        'printf "%s\\n" "$BQ_URN" "$BQ_TRACE_ID" "$BQ_ATTEMPTS" "$BQ_QUEUE" "$BQ_LANG" "$BQ_CREATED_AT" '
        '"${BQ_REPLAY-unset}" >"$d/env"; printf "%s" "$BQ_ID" >"$d/id"'
    )
    bq.run("work", "-q", "orders", "--exec", handler, "--concurrency", 2, "--drain")
    got = {(d / "body").read_bytes(): d for d in tmp_path.glob("got-*")}
    assert sorted(got) == sorted(set(bodies))
    for body, d in got.items():
        envelope = EnvelopeCodec.decode(body.decode("utf-8"))
        data = next(m for m in reversed(reference.Body(body).members) if m.name == "data")
        assert (d / "data").read_bytes().rstrip(b"\n") == body[data.start : data.end]
        meta = envelope["meta"]
        assert (d / "env").read_text().split("\n")[:6] == [
            EnvelopeCodec.urn(envelope), envelope["trace_id"], str(envelope["attempts"]), "orders", meta["lang"],
            str(meta["created_at"]),
        ]  # fmt: skip
        assert (d / "id").read_text() == meta["id"]


def test_coprocesses_get_the_message(new_bq, tmp_path):
    """bq-work(1), --handle-stdio: a JSON line with the envelope as it was received, its bytes included."""
    bodies = samples.encoded(40) + [body for _, body, verdict in samples.fixtures() if verdict == "ok" and b"\n" not in body]
    bq = new_bq()
    bq.run("publish", "-q", "orders", "--raw", "--lines", input=b"\n".join(bodies) + b"\n")
    log = tmp_path / "lines"
    script = tmp_path / "coprocess.py"
    script.write_text(
        "import json, sys\n"
        "log = open(sys.argv[1], 'ab', buffering=0)\n"
        "for line in sys.stdin.buffer:\n"
        "    log.write(line)\n"
        "    print(json.dumps({'n': json.loads(line)['n'], 'ok': True}), flush=True)\n"
    )
    bq.run("work", "-q", "orders", "--handle-stdio", f"{sys.executable} {script} {log}", "--drain")
    lines = log.read_bytes().splitlines()
    assert len(lines) == len(bodies)
    for line in lines:
        message = json.loads(line)
        body = next(b for b in bodies if json.loads(b)["meta"]["id"] == message["id"])
        assert b'"envelope":' + body in line
        assert message["envelope"] == json.loads(body)
        assert (message["queue"], message["attempts"], message["replay"], message["headers"]) == ("orders", 0, False, {})
        assert message["urn"] == peer.identity(body)
        assert message["trace_id"] == json.loads(body)["trace_id"]
    assert _bodies(bq) == []


def test_a_coprocess_settles_in_any_way(new_bq, tmp_path):
    """ok, error, retry_after_ms and reject, answered out of order."""
    bq = new_bq()
    bq.run("publish", "-q", "orders", "--lines", "urn:x", input="".join(f'{{"n":{n}}}\n' for n in range(8)))
    script = tmp_path / "coprocess.py"
    script.write_text(
        "import json, sys\n"
        "held = []\n"
        "for line in sys.stdin:\n"
        "    held.append(json.loads(line))\n"
        "    if len(held) < 8: continue\n"
        "    for m in reversed(held):\n"
        "        n = m['envelope']['data']['n']\n"
        "        answer = {'n': m['n']}\n"
        "        if n < 2: answer['ok'] = True\n"
        "        elif n < 4: answer.update(error='declined \\u2014 ' + str(n), exception='Declined', reject=True)\n"
        "        elif n < 6: answer.update(error='later', exception='Later', retry_after_ms=3600000)\n"
        "        else: answer.update(error='now', exception=None)\n"
        "        print(json.dumps(answer), flush=True)\n"
    )
    worker = bq.start(
        "work", "-q", "orders", "--handle-stdio", f"{sys.executable} {script}", "--prefetch", 8, "--retry-backoff", "1h"
    )
    path = bq.url.removeprefix("sqlite:")
    until(
        lambda: not [m for m in sqlitefile.read(path) if m.leased] and len(sqlitefile.read(path)) == 6,
        what=lambda: f"all settled: {sqlitefile.read(path)} {worker}",
    )
    worker.stop()
    dead = {m["data"]["n"]: m["dead_letter"] for m in map(json.loads, _bodies(bq, "orders.dlq"))}
    assert sorted(dead) == [2, 3]
    for n, block in dead.items():
        assert (block["reason"], block["error"], block["exception"]) == ("failed", f"declined — {n}", "Declined")
        assert block["attempts"] == 1
    waiting = sorted((m["data"]["n"], m["attempts"]) for m in map(json.loads, _bodies(bq)))
    assert waiting == [(4, 1), (5, 1), (6, 1), (7, 1)]


# ---- retried, dead-lettered, redriven -----------------------------------------------------------------------------------


def _ok_bodies():
    return samples.encoded(30) + [body for _, body, verdict in samples.fixtures() if verdict == "ok"]


def test_retried_bodies_keep_their_bytes(new_bq):
    """Contract 1 and 3: a failed message waits with attempts + 1, and not another byte changed."""
    bq = new_bq()
    bodies = _ok_bodies()
    _publish(bq, bodies)
    bq.run("work", "-q", "orders", "--exec", "exit 1", "--retry-backoff", "1h", "--max-attempts", 9, "--drain")
    after = _bodies(bq)
    assert len(after) == len(bodies)
    for body in bodies:
        read, attempts = reference.Body(body), json.loads(body)["attempts"] + 1
        if read.changes_nothing_else():
            assert read.respelled(attempts) in after, body
            after.remove(read.respelled(attempts))
        else:
            (same,) = [a for a in after if reference.tokens_of(a) == read.rewritten(attempts, keep_dead_letter=True)]
            after.remove(same)
    assert after == []


def test_retries_until_the_limit(new_bq, tmp_path):
    """attempts as the handler sees them: 0, 1, 2; then the dead-letter queue, with 3 in both places."""
    bq, seen = new_bq(), tmp_path / "seen"
    body = samples.encoded(1)[0]
    _publish(bq, [body])
    bq.run("work", "-q", "orders", "--exec", f'echo "$BQ_ATTEMPTS" >>{seen}; echo no >&2; exit 7', "--drain", exit=1)
    assert seen.read_text().split() == ["0", "1", "2"]
    (record,) = map(json.loads, _bodies(bq, "orders.dlq"))
    assert record["attempts"] == record["dead_letter"]["attempts"] == 3
    assert (record["dead_letter"]["error"], record["dead_letter"]["exception"]) == ("no", "exit status 7")


def test_dead_letters_are_the_peers(new_bq):
    """Contract 4: the record of an envelope is what the peer writes, byte for byte where the body is canonical, and
    otherwise the received tokens with attempts and dead_letter set."""
    bq = new_bq()
    bodies = _ok_bodies()
    _publish(bq, bodies)
    before = int(time.time() * 1000)
    bq.run("work", "-q", "orders", "--exec", 'echo first >&2; echo "Card declined — é" >&2; exit 3', "--max-attempts", 1,
           "--drain", exit=1)  # fmt: skip
    records = {json.loads(r)["meta"]["id"]: r for r in _bodies(bq, "orders.dlq")}
    compared = 0
    for body in bodies:
        envelope = json.loads(body)
        record = records[envelope["meta"]["id"]]
        block = json.loads(record)["dead_letter"]
        assert before <= block["failed_at"] <= int(time.time() * 1000)
        expected = Block(
            reason="failed", error="Card declined — é", exception="exit status 3", failed_at=block["failed_at"],
            original_queue="orders", attempts=envelope["attempts"] + 1,
        )  # fmt: skip
        assert block == expected.as_dict(), body
        written = json.dumps(block, ensure_ascii=False, separators=(",", ":")).encode()
        assert reference.tokens_of(record) == reference.Body(body).rewritten(envelope["attempts"] + 1, block=written)
        if peer.is_canonical(body) and "dead_letter" not in envelope and "urn" not in envelope:
            assert record == peer.record(body, expected).encode("utf-8")
            compared += 1
    assert compared >= 30


def test_redriven_bodies_are_the_published_ones(new_bq):
    """Contract 6: after a dead letter and its redrive the queue holds the very bytes that were published."""
    bq = new_bq()
    bodies = samples.encoded(30)
    _publish(bq, bodies)
    bq.run("work", "-q", "orders", "--exec", "exit 65", "--drain", exit=1)
    assert len(_bodies(bq, "orders.dlq")) == 30
    dry = bq.run("redrive", "-q", "orders", "--dry-run")
    assert len(dry.lines) == 30 and len(_bodies(bq, "orders.dlq")) == 30 and not _bodies(bq)
    done = bq.run("redrive", "-q", "orders")
    assert len(done.lines) == 30
    assert _bodies(bq, "orders.dlq") == []
    assert sorted(_bodies(bq)) == sorted(bodies)
    handled = bq.run("work", "-q", "orders", "--exec", "cat; echo", "--drain")
    assert len(handled.lines) == 30


def test_redrive_takes_the_peers_dead_letters(new_bq):
    """A dead-letter queue that the peer wrote: each record goes to where it came from, reset as the peer resets it."""
    bq = new_bq()
    records = []
    for index, body in enumerate(samples.encoded(20)):
        block = Block(reason=["failed", "unknown_urn"][index % 2], original_queue=["orders", "billing"][index % 2], lang="python")
        records.append(peer.record(body, block).encode("utf-8"))
    _publish(bq, records, "some.dlq")
    bq.run("redrive", "-q", "orders", "--from", "some.dlq")
    assert sorted(_bodies(bq, "orders")) == sorted(peer.redrive(r).encode("utf-8") for r in records[::2])
    assert sorted(_bodies(bq, "billing")) == sorted(peer.redrive(r).encode("utf-8") for r in records[1::2])
    assert _bodies(bq, "some.dlq") == []


def test_poison_is_kept_as_the_peer_keeps_it(new_bq):
    """Contract 3 and 4: no handler sees poison; its record is the peer's, byte for byte; redrive leaves it alone, and
    gives back the very bytes when asked for by name."""
    bq = new_bq()
    bodies = [
        b"not json", b"\xff\xfe{", b"", b"null", b"[]", b"{}", b' { "a" : 1 } ', b'{"job":"u","attempts":"1"}',
        b'{"job":5,"data":{"n":1e400,"big":18446744073709551615}}', b'{"x":"\\ud800"}', b'{"dead_letter":null}',
        "\ufeff{}".encode(), '{"s":"é\u2028"}'.encode(), b'{"a":1,"a":2}\n', b'{"job":"u"} trailing',
    ]  # fmt: skip
    bodies += [body for name, body, verdict in samples.fixtures() if verdict != "ok"]
    _publish(bq, bodies)
    done = bq.run("work", "-q", "orders", "--exec", "echo handled", "--drain", exit=1)
    assert not done.out
    records = _bodies(bq, "orders.dlq")
    assert len(records) == len(bodies)
    for body, record in zip(bodies, records):
        block = json.loads(record)["dead_letter"]
        assert block["reason"] == "poison"
        assert block["exception"] == "BabelQueueError"
        assert block["error"].startswith("Undecodable BabelQueue body: ") and len(block["error"]) > 30, block
        assert block["original_queue"] == "orders"
        assert block["lang"] == "c"
        expected = Block(
            error=block["error"], exception=block["exception"], failed_at=block["failed_at"],
            attempts=block["attempts"],
        )  # fmt: skip
        assert record == peer.poison_record(body, expected)
    skipped = bq.run("redrive", "-q", "orders", exit=None)
    assert _bodies(bq, "orders.dlq") == records and not _bodies(bq), skipped
    bq.run("redrive", "-q", "orders", "--include", "poison", exit=None)
    assert sorted(_bodies(bq, "orders") + _bodies(bq, "orders.dlq")) == sorted(records)


# ---- the whole decision, beside the peer's runtime ----------------------------------------------------------------------

# Differences, each with the clause that decides it (and a line in docs/decisions.md):
#   - nonconformant bodies: poison here (contract 2, 7: memory and sqlite are conformant), the peer's runtime hands them
#     to handlers;
#   - a number like 1e400 outside data: kept (contract 1), the peer writes Infinity and then finds its own body poison;
#   - the attempts of a poison record: 0 when the body is not UTF-8 or they are no int64, at most 2^31-1 (contract 3.2:
#     clamped, unparseable is 0); the peer reads whatever its parser gives.


def _peer_dead_letters(bodies, handlers, strategy):
    """What the peer's worker leaves on its dead-letter queue, by the index of the body."""
    app = BabelQueue("memory://", queue="orders", dead_letter=True, max_attempts=2, on_unknown_urn=strategy)
    for urn, handler in handlers.items():
        app.handler(urn)(handler)
    left = []
    for body in bodies:
        app.transport.publish("orders", peer.text_of(body))
        while (received := app.transport.pop("orders")) is not None:
            app.dispatch(received)
        dead = app.transport.pop("orders.dlq")
        left.append(dead.body if dead else None)
    return left


@pytest.mark.parametrize("strategy", ["fail", "delete", "dead_letter"])
def test_the_same_messages_die_as_with_the_peer(new_bq, strategy):
    """Good, failing, unknown, poison and nonconformant bodies through both workers: the same ones end on the
    dead-letter queue, with the same record but for its time, wording and language."""
    # Integers that the peer's interpreter cannot convert have a test of their own (test_differential.py).
    corpus = [body for _, body in Maker(23).corpus(200) if body and b"9" * 4300 not in body]
    for index, body in enumerate(corpus):
        # Every second envelope names a handler that fails.
        if index % 2:
            corpus[index] = body.replace(b"urn:babel:orders:created", b"urn:bad")

    def fails(data, meta):
        raise ValueError("boom")

    handlers = {"urn:bad": fails, "x": lambda data, meta: None}
    theirs = _peer_dead_letters(corpus, handlers, strategy)

    bq = new_bq()
    frames = [f"q{index}" for index in range(len(corpus))]
    for name, body in zip(frames, corpus):
        bq.run("publish", "-q", name, "--raw", input=body)
    queues = [part for name in frames for part in ("-q", name)]
    bq.run(
        "work", *queues, "--handle", "urn:bad=echo boom >&2; exit 1", "--handle", "x=true", "--unknown", strategy,
        "--max-attempts", 2, "--concurrency", 2, "--drain=all", exit=None,
    )  # fmt: skip
    compared = stricter = 0
    for name, body, their_record in zip(frames, corpus, theirs):
        assert _bodies(bq, name) == [], body
        ours = _bodies(bq, name + ".dlq")
        verdict = peer.verdict(body)[0]
        if verdict == "nonconformant":
            # delete, set explicitly, is read for poison too (contract 3).
            assert len(ours) == (0 if strategy == "delete" else 1), body
            assert not ours or json.loads(ours[0])["dead_letter"]["reason"] == "poison"
            stricter += 1
            continue
        assert len(ours) == (their_record is not None), (verdict, body, ours, their_record)
        if not ours or "Infinity" in their_record:
            continue
        mine, its = json.loads(ours[0]), json.loads(their_record)
        block, other = mine.pop("dead_letter"), its.pop("dead_letter")
        assert mine == its, body
        assert block["reason"] == other["reason"], body
        if verdict != "poison/utf8" and 0 <= other["attempts"] < 2**31:
            assert block["attempts"] == other["attempts"], body
        else:
            assert block["attempts"] in (0, 2**31 - 1), body
        # The queues have other names here, so that each body's fate can be told.
        if other["original_queue"] != "orders":
            assert block["original_queue"] == other["original_queue"], body
        if block["reason"] == "unknown_urn":
            assert (block["error"], block["exception"]) == (other["error"], other["exception"]), body
        compared += 1
    print(f"{compared} records compared, {stricter} nonconformant")
    assert compared >= (5 if strategy == "delete" else 20) and stricter


# ---- copying a queue ----------------------------------------------------------------------------------------------------


def test_a_queue_is_copied_whole(new_bq, tmp_path):
    """bq-work(1): work --print --format full | publish --lines copies a queue, bodies byte for byte, headers and keys too."""
    bq = new_bq()
    bodies = _ok_bodies()
    _publish(bq, bodies)
    bq.run("publish", "-q", "orders", "urn:x", "{}", "--header", "traceparent=00-1", "--header", "a b=c=d", "--key", "k")
    expected = _bodies(bq)
    printed = bq.run("work", "-q", "orders", "--print", "--format", "full", "--drain")
    other = new_bq(f"sqlite:{tmp_path / 'other.db'}")
    other.run("publish", "-q", "orders", "--lines", input=printed.out)
    assert _bodies(other) == expected
    assert bq.run("stats", "-q", "orders", "--json").json[0]["ready"] == 0
    again = other.run("work", "-q", "orders", "--print", "--format", "full", "--drain")
    assert again.json[-1]["headers"] == {"traceparent": "00-1", "a b": "c=d"}
    assert again.json[-1]["key"] == "k"


def test_the_judge_and_the_command_agree(new_bq, tmp_path):
    """`bq inspect --record`, --rewrite and --redrive print what the library's functions make."""
    bq = new_bq()
    bodies = [body for body in _ok_bodies() if b"\n" not in body][:12]
    said = judge.judge(bodies, [5] * len(bodies), [Block()] * len(bodies))
    lines = b"\n".join(bodies) + b"\n"
    assert bq.run("inspect", "--lines", "--rewrite", "attempts=5", "-", input=lines).lines == [s.retry for s in said]
    assert bq.run("inspect", "--lines", "--redrive", "-", input=lines).lines == [s.redrive for s in said]
    poison = bq.run("inspect", "--lines", "--record", "poison", "-q", "orders", "-", input=lines, exit=None)
    for line, one in zip(poison.lines, said):
        def cut(record):
            return re.sub(rb',"dead_letter":\{"reason":"poison".*\}$', b"", record)

        assert cut(line) == cut(one.poison_record)
