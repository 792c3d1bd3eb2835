"""`bq publish`: one message, many lines, raw bodies; what is printed, and how it ends."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import uuid
from contextlib import closing

import pytest

from support import build, sqlitefile
from support.cli import environment
from support.pipes import Talk
from support.wait import until


def err(done):
    return done.err.decode()


def bodies(bq, queue):
    path = bq.url.removeprefix("sqlite:").split("?")[0]
    return [m.body for m in sqlitefile.read(path) if m.queue == queue]


def full(bq, queue):
    return bq.run("peek", "-q", queue, "--format", "full").json


# ---- one message ---------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_one_message(new_bq):
    bq = new_bq()
    done = bq.run("publish", "-q", "orders", "urn:babel:orders:created", ' {"order" : 1.0} ')
    id = done.out.decode().strip()
    assert str(uuid.UUID(id)) == id and not done.err
    (body,) = bodies(bq, "orders")
    message = json.loads(body)
    assert list(message) == ["job", "trace_id", "data", "meta", "attempts"]
    assert b'"data":{"order":1.0}' in body and message["meta"]["id"] == id
    assert (message["job"], message["meta"]["queue"], message["meta"]["lang"]) == ("urn:babel:orders:created", "orders", "c")
    assert bq.run("publish", "-q", "orders", "urn:x", "{}", "--json").json[0].keys() == {"id", "queue"}


@pytest.mark.parametrize("operands", [["urn:x"], ["urn:x", "-"]])
def test_data_from_stdin(new_bq, operands):
    bq = new_bq()
    bq.run("publish", "-q", "orders", *operands, input='{"a":\n  1}\n')
    assert json.loads(bodies(bq, "orders")[0])["data"] == {"a": 1}


def test_large_data_from_stdin(new_bq):
    bq = new_bq()
    text = "é" * 3_000_000
    bq.run("publish", "-q", "orders", "urn:x", input=json.dumps({"t": text}, ensure_ascii=False))
    assert json.loads(bodies(bq, "orders")[0])["data"]["t"] == text


@pytest.mark.parametrize(
    "data", ["", "[]", "null", "5", '"x"', "{", '{"a":1}{"a":2}', '{"a":1e400}', '{"a":NaN}', "{'a':1}", '{"a":1,}', "\ufeff{}"]
)
def test_data_that_is_no_object(new_bq, tmp_path, data):
    bq = new_bq()
    done = bq.run("publish", "-q", "orders", "urn:x", "-", input=data, exit=65)
    assert err(done).startswith("bq: publish: ") and not done.out
    assert not (tmp_path / "bq.db").exists() or bodies(bq, "orders") == []


def test_bytes_that_are_no_text(new_bq):
    bq = new_bq()
    bq.run("publish", "-q", "orders", "urn:x", input=b'{"a":"\xff"}', exit=65)
    assert bq.run("publish", "-q", "orders", b"urn:\xff".decode("utf-8", "surrogateescape"), "{}", exit=None).code in (64, 65)
    name = b"h=\xff".decode("utf-8", "surrogateescape")
    assert "not UTF-8" in err(bq.run("publish", "-q", "orders", "urn:x", "{}", "--header", name, exit=64))


def test_everything_beside_the_message(new_bq):
    bq = new_bq()
    bq.run(
        "publish", "-q", "orders", "urn:x", "{}", "--trace-id", "chain", "--header", "a=1", "-H", "b=x=y", "--header=traceparent=00-1",
        "--key", "k 1", "--lang", "go",
    )  # fmt: skip
    (message,) = full(bq, "orders")
    assert message["headers"] == {"a": "1", "b": "x=y", "traceparent": "00-1"}
    assert (message["key"], message["queue"], message["route"], message["attempts"]) == ("k 1", "orders", "urn:x", 0)
    body = json.loads(message["body"])
    assert (body["trace_id"], body["meta"]["lang"]) == ("chain", "go")


def test_a_delay(new_bq):
    bq = new_bq()
    bq.run("publish", "-q", "orders", "urn:x", "{}", "--delay", "1h")
    bq.run("publish", "-q", "orders", "urn:x", "{}", "--delay", "0")
    stats = bq.stats("orders")
    assert (stats["ready"], stats["delayed"]) == (1, 1)


def test_an_unconfirmed_message(new_bq, tmp_path):
    """A file that stays locked: exit 75, nothing printed, within the timeout."""
    bq = new_bq(f"sqlite:{tmp_path / 'bq.db'}?busy_timeout=100ms")
    bq.run("publish", "-q", "orders", "urn:x", "{}")
    with closing(sqlite3.connect(tmp_path / "bq.db", isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        done = bq.run("publish", "-q", "orders", "urn:x", "{}", "--timeout", "1s", exit=None, timeout=20)
        db.execute("ROLLBACK")
    assert done.code in (69, 75) and not done.out and done.err, done
    assert len(bodies(bq, "orders")) == 1


# ---- lines ---------------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_lines_of_data(new_bq):
    """Ids in the order of the lines; a last line without its line feed counts; blank ones do not."""
    bq = new_bq()
    done = bq.run("publish", "-q", "orders", "--lines", "urn:x", input='{"n":0}\n\n{"n":1}\r\n  \n{"n":2}')
    assert [json.loads(b)["data"]["n"] for b in bodies(bq, "orders")] == [0, 1, 2]
    assert [json.loads(b)["meta"]["id"] for b in bodies(bq, "orders")] == done.out.decode().split()
    assert not done.err
    assert bq.run("publish", "-q", "orders", "--lines", "urn:x").lines == []


def test_many_lines_in_order(new_bq):
    bq = new_bq()
    count = 20000
    done = bq.run("publish", "-q", "orders", "-l", "urn:x", input="".join(f'{{"n":{n}}}\n' for n in range(count)))
    written = [json.loads(b) for b in bodies(bq, "orders")]
    assert [m["data"]["n"] for m in written] == list(range(count))
    assert [m["meta"]["id"] for m in written] == done.out.decode().split()


def test_lines_of_objects(new_bq):
    bq = new_bq()
    lines = [
        {"urn": "urn:a", "data": {"n": 1}},
        {"urn": "urn:b", "data": {}, "trace_id": "t", "headers": {"h": "2", "own": "3"}, "key": "k", "id": "mine", "queue": "x"},
        {"urn": "urn:c", "data": {}, "delay_ms": 3600000, "headers": None},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = bq.run("publish", "-q", "orders", "--lines", "--header", "h=1", "--trace-id", "d", input=text)
    first, second = full(bq, "orders")[:2]
    assert (first["route"], first["headers"]) == ("urn:a", {"h": "1"})
    assert json.loads(first["body"])["trace_id"] == "d"
    assert (second["headers"], second["key"]) == ({"h": "2", "own": "3"}, "k")
    assert json.loads(second["body"])["trace_id"] == "t" and done.lines[1] == b"mine"
    assert bq.stats("orders")["delayed"] == 1
    assert bq.run("queues").lines == [b"orders"]  # -q says where all of them go


def test_queues_of_the_lines(new_bq):
    bq = new_bq()
    text = '{"urn":"u","data":{},"queue":"a"}\n{"urn":"u","data":{},"queue":"b"}\n{"urn":"u","data":{}}\n'
    done = bq.run("publish", "--lines", "--json", input=text, exit=1)
    assert [row["queue"] for row in done.json] == ["a", "b"]
    assert "line 3: no queue" in err(done)
    assert sorted(bq.run("queues").lines) == [b"a", b"b"]


@pytest.mark.smoke
def test_bad_lines(new_bq):
    """kcat#36: each is told with its number, the rest goes on, the counts come last, exit 1."""
    bq = new_bq()
    lines = ['{"urn":"u","data":{"n":1}}', "not json", '{"urn":"u"}', "[]", '{"urn":" ","data":{}}', '{"urn":"u","data":{"a":1e400}}',
             '{"urn":"u","data":{},"delay_ms":"1"}', '{"urn":"u","data":{},"urnn":1}', "", '{"urn":"u","data":{"n":2}}']  # fmt: skip
    done = bq.run("publish", "-q", "orders", "--lines", input="\n".join(lines) + "\n", exit=1)
    told = re.findall(r"^bq: line (\d+): .+$", err(done), re.M)
    assert told == ["2", "3", "4", "5", "6", "7", "8"]
    assert err(done).splitlines()[-1] == "bq: published 2, failed 7"
    assert [json.loads(b)["data"]["n"] for b in bodies(bq, "orders")] == [1, 2]
    assert len(done.lines) == 2
    quiet = bq.run("publish", "-q", "orders", "--lines", "--quiet", input="x\n", exit=1)
    assert "line 1" in err(quiet) and "published" not in err(quiet)


def test_lines_are_confirmed_while_more_are_awaited(new_bq):
    """A slow producer sees each id at once: nothing waits for a full buffer."""
    bq = new_bq()
    with Talk(bq, "publish", "-q", "orders", "--lines", "urn:x") as talk:
        for n in range(3):
            talk.write(f'{{"n":{n}}}\n')
            assert str(uuid.UUID(talk.line().decode()))
        talk.write('{"n":3')
        talk.write('}\n{"n"')
        assert talk.line()
        talk.write(":4}")
        talk.end_input()
        assert talk.line()
        talk.wait(0)
    assert len(bodies(bq, "orders")) == 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_reading(new_bq, number):
    """What was read is confirmed and told; then the process ends by the signal."""
    bq = new_bq()
    with Talk(bq, "publish", "-q", "orders", "--lines", "urn:x") as talk:
        talk.write('{"n":1}\n{"n":2}\n')
        ids = [talk.line(), talk.line()]
        talk.signal(number)
        talk.wait(-number)
    assert [json.loads(b)["meta"]["id"].encode() for b in bodies(bq, "orders")] == ids


def test_a_closed_output_ends_the_reading(new_bq):
    """`| head -1`: a clean end although stdin goes on."""
    bq = new_bq()
    read, write = os.pipe()
    process = bq._popen(["publish", "-q", "orders", "--lines", "urn:x"], None, stdin=-1, stdout=write, stderr=-1)
    os.close(write)
    os.close(read)
    try:
        process.stdin.write(b'{"n":2}\n')
        process.stdin.flush()
        assert process.wait(20) == 0
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.communicate()


# ---- raw -----------------------------------------------------------------------------------------------------------------


def test_raw_bodies(new_bq):
    bq = new_bq()
    raws = [b"not json", b"", b"\xff\x00\xfe", b'{"job":"u","meta":{"id":"m-1"},"body":"x"}', b'{\n"job" : "u" }\n']
    for raw in raws:
        done = bq.run("publish", "-q", "orders", "--raw", input=raw)
        assert done.lines == [b"m-1" if b"m-1" in raw else b""]
        assert (b"no meta.id" in done.err) == (b"m-1" not in raw)
    assert bodies(bq, "orders") == raws
    bq.run("publish", "-q", "args", "--raw", '{"job":"u"}', "--header", "a=b")
    assert full(bq, "args")[0]["headers"] == {"a": "b"}
    bq.run("publish", "-q", "lines", "--raw", "--lines", input=b"one\n[2]\n\n3")
    assert bodies(bq, "lines") == [b"one", b"[2]", b"3"]


def test_full_messages_are_taken_back(new_bq):
    """--raw and --lines take what --format full prints: body, headers, key, and bytes that are no text."""
    bq = new_bq()
    message = {"queue": "q", "route": "u", "headers": {"a": "b"}, "key": "k", "attempts": 7, "body": '{"job":"u",\n"x":1}'}
    binary = {**message, "body": "/wD+", "body_encoding": "base64"}
    for queue, options in (("raw", ["--raw"]), ("lines", ["--lines"]), ("both", ["--lines", "--raw"])):
        for one in (message, binary):
            bq.run("publish", "-q", queue, *options, input=json.dumps(one))
        assert bodies(bq, queue) == [message["body"].encode(), b"\xff\x00\xfe"]
        assert (full(bq, queue)[0]["headers"], full(bq, queue)[0]["key"]) == ({"a": "b"}, "k")
        again = full(bq, queue)[1]
        assert (again["body"], again["body_encoding"]) == ("/wD+", "base64")
    wrong = bq.run("publish", "-q", "w", "--lines", input='{"body":"/","body_encoding":"base64"}\n{"body":1}\n', exit=1)
    assert "line 1: \"body\" is not base64" in err(wrong) and "line 2" in err(wrong)


# ---- standard streams ----------------------------------------------------------------------------------------------------


def test_a_full_disk_behind_stdout(new_bq):
    bq = new_bq()
    with open("/dev/full", "wb") as full_disk:
        for args in (["publish", "-q", "orders", "urn:x", "{}"], ["help"], ["version"], ["stats"], ["queues"],
                     ["peek", "-q", "orders"], ["publish", "-q", "orders", "--lines", "urn:x"]):  # fmt: skip
            process = bq._popen(args, None, stdin=-1, stdout=full_disk, stderr=-1)
            _, said = process.communicate(b"{}\n", timeout=30)
            assert process.returncode == 74, (args, said)
            assert b"cannot write to standard output: No space left" in said
    assert len(bodies(bq, "orders")) == 2  # what was published was published


def test_closed_descriptors(new_bq, tmp_path):
    """No file of ours becomes somebody's stdout: with 0, 1 and 2 closed the database stays intact."""
    bq = new_bq()
    for closed, status in (("<&-", 74), (">&-", 74), ("2>&-", 0), ("<&- >&- 2>&-", 74)):
        command = f'"$0" publish -q orders urn:x {"- " if "<" in closed else "{}"} {closed}'
        env = environment(BQ_URL=bq.url)
        done = subprocess.run(["bash", "-c", command, build.bq_path()], cwd=tmp_path, env=env, timeout=30)
        assert done.returncode == status, closed
    assert len(bodies(bq, "orders")) == 2  # the two with data


def test_unreadable_stdin(new_bq, tmp_path):
    bq = new_bq()
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        for options in ([], ["--lines"]):
            process = bq._popen(["publish", "-q", "orders", "urn:x", *options], None, stdin=directory, stdout=-1, stderr=-1)
            out, said = process.communicate(timeout=30)
            assert process.returncode == 74 and b"standard input: Is a directory" in said and not out
    finally:
        os.close(directory)


def test_memory_is_a_broker_of_its_own(new_bq):
    bq = new_bq("memory:x")
    assert str(uuid.UUID(bq.run("publish", "-q", "orders", "urn:x", "{}").out.decode().strip()))
    assert bq.stats("orders")["ready"] == 0
    until(lambda: bq.run("queues").lines == [], what="an empty memory")


@pytest.mark.smoke
def test_memory_that_nobody_else_has_is_warned_of(new_bq):
    """A message must not vanish by accident: one warning, on stderr, for whatever memory: cannot do between commands."""
    bq = new_bq("memory:x")
    warning = "bq: warning: memory:x lives in this process only: "
    for args in (["publish", "-q", "q", "urn:x", "{}"], ["publish", "-q", "q", "--lines", "urn:x"], ["work", "-q", "q", "--print", "--drain"],
                 ["stats"], ["stats", "-q", "q"], ["queues"], ["redrive", "-q", "q"], ["redrive", "-q", "q", "--from", "z"]):  # fmt: skip
        assert bq.run(*args).err.decode().count(warning) == 1, args
        assert warning not in bq.run(*args, "--quiet").err.decode()
    for args in (["publish", "-q", "q", "urn:x", "{}"], ["stats"]):
        assert "lives in" not in new_bq().run(*args).err.decode()


@pytest.mark.smoke
@pytest.mark.parametrize("data", [b"", b" \n"])
def test_no_data(new_bq, data):
    bq = new_bq()
    for said in (bq.run("publish", "-q", "q", "urn:x", input=data, exit=65), bq.run("publish", "-q", "q", "urn:x", data.decode(), exit=65)):
        assert said.err == b"bq: publish: no data: give a JSON object as DATA or on standard input\n"
    assert bq.run("queues", exit=None).lines == []


def test_data_that_is_no_json(new_bq):
    bq = new_bq()
    for data in ("a=1", " a", "'{}'", "<x/>", "}"):
        said = bq.run("publish", "-q", "q", "urn:x", data, exit=65).err.decode()
        assert said == f"bq: publish: data: not a JSON object: unexpected '{data.strip()[0]}'\n"
    for data in ("[1]", "1", '"x"', "null", "true", "{", "\u00e9"):
        said = bq.run("publish", "-q", "q", "urn:x", data, exit=65).err
        assert said.startswith(b"bq: publish: data") and b"unexpected" not in said, data


def test_a_raw_body_without_an_id(new_bq):
    """There is no id to print: the line is empty, and why is said."""
    bq = new_bq()
    done = bq.run("publish", "-q", "q", "--raw", "not json")
    assert done.out == b"\n" and done.err == b"bq: the body holds no meta.id, so that none is printed\n"
    assert bq.run("publish", "-q", "q", "--raw", "not json", "--json", "--quiet").json == [{"id": None, "queue": "q"}]
    assert bq.stats("q")["ready"] == 2
