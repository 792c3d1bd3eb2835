"""`bq work --handle-stdio`: the lines both ways, and coprocesses that misbehave in every way."""

import json
import signal
import sys
import textwrap
import time

import pytest

from support import sqlitefile
from support.wait import until

HEAD = """
import json, os, sys, time
def answer(**members):
    sys.stdout.write(json.dumps(members) + "\\n"); sys.stdout.flush()
"""


def err(done):
    return done.err.decode()


def bodies(bq, queue):
    return [m.body for m in sqlitefile.read(bq.url.removeprefix("sqlite:")) if m.queue == queue]


def dead(bq):
    return {json.loads(b)["data"].get("n"): json.loads(b)["dead_letter"] for b in bodies(bq, "orders.dlq")}


def publish(bq, count, first=0, *options):
    bq.run("publish", "-q", "orders", "--lines", "urn:x", *options, input="".join(f'{{"n":{n}}}\n' for n in range(first, first + count)))


@pytest.fixture
def coprocess(tmp_path):
    """Writes a coprocess in Python; the command that runs it."""

    def make(text, *args, name="coprocess.py"):
        path = tmp_path / name
        path.write_text(HEAD + textwrap.dedent(text))
        return " ".join(["exec", sys.executable, "-S", str(path), *map(str, args)])

    return make


def work(bq, command, *options, **more):
    return bq.run("work", "-q", "orders", "--handle-stdio", command, "--drain", *options, **more)


# ---- the lines -------------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_a_message_as_a_line(new_bq, coprocess, tmp_path):
    bq = new_bq()
    bq.run("publish", "-q", "orders", 'urn:"é"\\', '{"a":1.0}', "--header", 'h"=ü\n', "--trace-id", "t", "--header", "z=1")
    publish(bq, 1)
    before = bodies(bq, "orders")
    command = coprocess("for line in sys.stdin.buffer:\n  open(sys.argv[1], 'ab').write(line)\n  answer(n=json.loads(line)['n'], ok=True)",
                        tmp_path / "log")  # fmt: skip
    work(bq, command)
    lines = (tmp_path / "log").read_bytes().splitlines()
    first = json.loads(lines[0])
    assert list(first) == ["n", "queue", "urn", "id", "trace_id", "attempts", "replay", "headers", "envelope"]
    envelope = json.loads(before[0])
    assert first == {
        "n": 1, "queue": "orders", "urn": 'urn:"é"\\', "id": envelope["meta"]["id"], "trace_id": "t", "attempts": 0, "replay": False,
        "headers": {'h"': "ü\n", "z": "1"}, "envelope": envelope,
    }  # fmt: skip
    assert lines[0].endswith(b'"envelope":' + before[0] + b"}") and lines[1].startswith(b'{"n":2,')
    assert bodies(bq, "orders") == []


def test_line_breaks_in_an_envelope(new_bq, coprocess, tmp_path):
    """A body with line breaks between its tokens is one line, its tokens untouched; one without keeps its blanks."""
    bq = new_bq()
    rest = '"trace_id":"t","data":{"x":1.0,"s":"a\\nb"},"meta":{"id":"i","schema_version":1},"attempts":0}'
    for body in ('{\r\n"job" : "u",\n' + rest, '{ "job" : "u",' + rest):
        bq.run("publish", "-q", "orders", "--raw", input=body)
    command = coprocess("for line in sys.stdin.buffer:\n  open(sys.argv[1], 'ab').write(line)\n  answer(n=json.loads(line)['n'], ok=True)",
                        tmp_path / "log")  # fmt: skip
    work(bq, command)
    first, second = (tmp_path / "log").read_bytes().splitlines()
    assert first.endswith(('"envelope":{"job":"u",' + rest + "}").encode())
    assert second.endswith(('"envelope":{ "job" : "u",' + rest + "}").encode())


def test_answers_of_every_kind(new_bq, coprocess):
    """ok, error, reject, retry_after_ms, in any order, once as many are in flight as the prefetch allows."""
    bq = new_bq()
    publish(bq, 6)
    command = coprocess(
        """
        held = []
        for line in sys.stdin:
            held.append(json.loads(line))
            if len(held) < 6: continue
            for m in reversed(held):
                n = m["envelope"]["data"]["n"]
                if n == 0: answer(n=m["n"], ok=True)
                if n == 1: answer(n=m["n"], ok=True, result={"a": 1}, error=None, more="ignored")
                if n == 2: answer(n=m["n"], error="no \\u2014 money", exception="Declined", reject=True)
                if n == 3: answer(n=m["n"], error="later", retry_after_ms=3600000)
                if n == 4: answer(n=m["n"], ok=False)
                if n == 5: answer(n=m["n"], exception="E")
        """
    )
    done = work(bq, command, "--prefetch", 6, "--max-attempts", 5, "--retry-backoff", "1h", exit=1)
    assert dead(bq)[2] == {
        **dead(bq)[2], "reason": "failed", "error": "no — money", "exception": "Declined", "attempts": 1,
    }  # fmt: skip
    waiting = {json.loads(b)["data"]["n"]: json.loads(b)["attempts"] for b in bodies(bq, "orders")}
    assert waiting == {3: 1, 4: 1, 5: 1} and bq.stats("orders")["delayed"] == 3
    assert "handled 6, retried 3, dead-lettered 1" in err(done)


def test_partial_lines(new_bq, coprocess):
    """Answers in pieces of a byte, and many in one write."""
    bq = new_bq()
    publish(bq, 40)
    command = coprocess(
        """
        numbers = []
        for line in sys.stdin:
            numbers.append(json.loads(line)["n"])
            if len(numbers) < 4: continue
            text = "".join('{"n":%d,"ok":true}\\n' % n for n in numbers)
            numbers = []
            for byte in text[:25]:
                os.write(1, byte.encode())
            os.write(1, b"\\n \\n" + text[25:].encode()) if text[24] == "\\n" else os.write(1, text[25:].encode())
        """
    )
    done = work(bq, command, "--prefetch", 4)
    assert "handled 40, retried 0" in err(done)


def test_large_messages(new_bq, coprocess):
    """Lines far larger than a pipe, several at a time, to a coprocess that is slow to read."""
    bq = new_bq()
    text = "é" * 700_000
    lines = "".join(json.dumps({"n": n, "t": text}, ensure_ascii=False) + "\n" for n in range(6))
    bq.run("publish", "-q", "orders", "--lines", "urn:x", input=lines)
    command = coprocess(
        """
        for line in sys.stdin.buffer:
            m = json.loads(line)
            answer(n=m["n"], ok=len(m["envelope"]["data"]["t"]) == 700000)
        """
    )
    assert "handled 6, retried 0" in err(work(bq, command, "--prefetch", 6))


def test_coprocesses_share_the_messages(new_bq, coprocess, tmp_path):
    """--coprocesses: each has its own, and each gets some."""
    bq = new_bq()
    publish(bq, 60)
    command = coprocess(
        """
        log = open(sys.argv[1] + "-" + str(os.getpid()), "w")
        for line in sys.stdin:
            print(json.loads(line)["envelope"]["data"]["n"], file=log, flush=True)
            time.sleep(0.005)
            answer(n=json.loads(line)["n"], ok=True)
        """,
        tmp_path / "log",
    )
    work(bq, command, "--coprocesses", 3, "--prefetch", 12)
    logs = [path.read_text().split() for path in tmp_path.glob("log-*")]
    assert len(logs) == 3 and all(logs)
    assert sorted(int(n) for log in logs for n in log) == list(range(60))


def test_it_may_share_with_shell_handlers(new_bq, coprocess):
    bq = new_bq()
    publish(bq, 2)
    bq.run("publish", "-q", "orders", "urn:shell", "{}")
    command = coprocess("for line in sys.stdin:\n  sys.stderr.write('stdio\\n'); answer(n=json.loads(line)['n'], ok=True)")
    done = work(bq, command, "--handle", "urn:shell=echo shell")
    assert done.lines == [b"shell"] and err(done).count("stdio") == 2


# ---- misbehaviour ------------------------------------------------------------------------------------------------------------

ONCE = """
def first_time():
    try:
        os.close(os.open(sys.argv[1], os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False
"""

GOOD = """
for line in sys.stdin:
    answer(n=json.loads(line)["n"], ok=True)
"""


@pytest.mark.parametrize(
    "bad, exception, error",
    [
        ("sys.exit(3)", "exit status 3", "ended before it answered"),
        ("os.kill(os.getpid(), 9)", "signal 9", "ended before it answered"),
        ("print('hello', flush=True)", "CoprocessError", "not a JSON object: hello"),
        ("print('[]', flush=True)", "CoprocessError", "not a JSON object"),
        ("answer(ok=True)", "CoprocessError", '"n" is no message'),
        ("answer(n=m['n'])", "CoprocessError", 'neither "ok" nor "error"'),
        ("answer(n=m['n'], ok='yes')", "CoprocessError", '"ok" is neither true nor false'),
        ("answer(n=m['n'], ok=True, error='x')", "CoprocessError", '"ok" beside a failure'),
        ("answer(n=m['n'], error=5)", "CoprocessError", '"error" is not a string'),
        ("answer(n=m['n'], error='x', retry_after_ms=-1)", "CoprocessError", '"retry_after_ms"'),
        ("answer(n=10**6, ok=True)", "CoprocessError", "no message with this number"),
        ("os.write(1, b'\\xff\\xfe\\n')", "CoprocessError", "not a JSON object"),
        ("os.write(1, b'\\0' * 10 + b'\\n')", "CoprocessError", "not a JSON object"),
        ("os.close(1); time.sleep(60)", "signal 9", "ended before it answered"),
    ],
)
def test_misbehaviour_fails_what_is_held(new_bq, coprocess, tmp_path, bad, exception, error):
    """It is ended and started again; what it held is counted and retried, and done by the next one."""
    bq = new_bq()
    publish(bq, 3)
    text = ONCE + f"\nif first_time():\n    m = json.loads(sys.stdin.readline())\n    {bad}\n    time.sleep(60)\n" + GOOD
    began = time.monotonic()
    done = work(bq, coprocess(text, tmp_path / "once"), "--prefetch", 1, "--max-attempts", 2)
    assert time.monotonic() - began < 30
    assert "handled 4, retried 1, dead-lettered 0" in err(done)
    assert f"failed: {exception}" in err(done) and error in err(done)
    assert "coprocess 1" in err(done)


def test_all_that_it_held_fails(new_bq, coprocess, tmp_path):
    """Eight in flight, two answered, then garbage: six fail, with the reason in their records."""
    bq = new_bq()
    publish(bq, 8)
    text = ONCE + """
if first_time():
    held = [json.loads(sys.stdin.readline()) for _ in range(8)]
    answer(n=held[0]["n"], ok=True)
    answer(n=held[5]["n"], ok=True)
    print("Traceback (most recent call last):", flush=True)
    time.sleep(60)
""" + GOOD  # fmt: skip
    done = work(bq, coprocess(text, tmp_path / "once"), "--prefetch", 8, "--max-attempts", 1, exit=1)
    blocks = dead(bq)
    assert sorted(blocks) == [1, 2, 3, 4, 6, 7]
    assert {b["exception"] for b in blocks.values()} == {"CoprocessError"}
    assert all("Traceback" in b["error"] for b in blocks.values())
    assert "it held 6 messages" in err(done)


def test_a_message_answered_twice(new_bq, coprocess, tmp_path):
    """The second answer is garbage; the message itself was settled by the first."""
    bq = new_bq()
    publish(bq, 3)
    text = ONCE + """
if first_time():
    m = json.loads(sys.stdin.readline())
    answer(n=m["n"], ok=True); answer(n=m["n"], error="again")
    time.sleep(60)
""" + GOOD  # fmt: skip
    done = work(bq, coprocess(text, tmp_path / "once"), "--prefetch", 2)
    assert dead(bq) == {} and bodies(bq, "orders") == []
    assert "no message with this number is in its hands" in err(done)


def test_a_line_without_an_end(new_bq, coprocess, tmp_path):
    """The answer grows beyond every bound: memory does not."""
    bq = new_bq()
    publish(bq, 1)
    text = ONCE + """
if first_time():
    sys.stdin.readline()
    while True: os.write(1, b"x" * 65536)
""" + GOOD  # fmt: skip
    done = work(bq, coprocess(text, tmp_path / "once"))
    assert "a line of more than 16 MiB" in err(done) and "handled 2, retried 1" in err(done)


def test_a_coprocess_that_is_too_slow(new_bq, coprocess, tmp_path):
    """--handler-timeout: it is ended, what it held fails as HandlerTimeout, another one does the rest."""
    bq = new_bq()
    publish(bq, 3)
    text = ONCE + "\nif first_time():\n    sys.stdin.readline(); time.sleep(60)\n" + GOOD
    began = time.monotonic()
    done = work(bq, coprocess(text, tmp_path / "once"), "--handler-timeout", "500ms", "--prefetch", 1, "--max-attempts", 1, exit=1)
    assert time.monotonic() - began < 20
    assert [(b["exception"], b["error"]) for b in dead(bq).values()] == [("HandlerTimeout", "no answer after 500 ms")]
    assert "handled 3" in err(done)


def test_one_that_closes_its_stdin(new_bq, coprocess, tmp_path):
    """It can be told nothing more, and has a moment to end: then another one does the work."""
    bq = new_bq()
    publish(bq, 4)
    text = ONCE + "\nif first_time():\n    os.close(0); time.sleep(60)\n" + GOOD
    done = work(bq, coprocess(text, tmp_path / "once"), timeout=30)
    assert bodies(bq, "orders") == [] == bodies(bq, "orders.dlq")
    assert "it closed its stdin" in err(done)


def test_restarts_with_backoff(new_bq, coprocess, tmp_path):
    """One that always ends before it answers: each start comes later than the one before, and stopping is prompt."""
    bq = new_bq()
    publish(bq, 1)
    starts = tmp_path / "starts"
    command = coprocess("open(sys.argv[1], 'a').write(f'{time.monotonic()}\\n'); sys.stdin.readline(); sys.exit(1)", starts)
    running = bq.start("work", "-q", "orders", "--handle-stdio", command, "--max-attempts", 100)
    until(lambda: starts.exists() and len(starts.read_text().split()) >= 5, what=lambda: repr(running))
    times = list(map(float, starts.read_text().split()))
    gaps = [b - a for a, b in zip(times, times[1:])][:4]
    assert gaps[0] >= 0.09 and gaps[1] >= 0.19 and gaps[2] >= 0.39 and gaps[3] >= 0.79, gaps
    began = time.monotonic()
    running.stop(0)
    assert time.monotonic() - began < 10
    (body,) = bodies(bq, "orders")
    assert 4 <= json.loads(body)["attempts"] <= 7 and bq.stats("orders")["ready"] == 1


@pytest.mark.smoke
@pytest.mark.parametrize("command", ["no-such-command-anywhere", "exec /etc/passwd"])
def test_a_command_that_cannot_be_run(new_bq, command):
    """Exit 78 at once: a misspelt command does not fail the queue's messages one by one."""
    bq = new_bq()
    publish(bq, 3)
    before = bodies(bq, "orders")
    done = work(bq, command, exit=78, timeout=20)
    assert "cannot run the coprocess" in err(done)
    assert bodies(bq, "orders") == before and bq.stats("orders")["ready"] == 3


# ---- stopping ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_it_finish(new_bq, coprocess, tmp_path, number):
    """What it holds is awaited and settled; its stdin ends, and so does it; exit 0."""
    bq = new_bq()
    publish(bq, 10)
    text = """
    held = []
    for line in sys.stdin:
        held.append(json.loads(line)["n"])
        if len(held) == 4:
            open(sys.argv[1] + "/holds", "w").close()
            while not os.path.exists(sys.argv[1] + "/go"): time.sleep(0.02)
        if len(held) >= 4:
            for n in held: answer(n=n, ok=True)
            held = []
    open(sys.argv[1] + "/ended", "w").close()
    """
    running = bq.start("work", "-q", "orders", "--handle-stdio", coprocess(text, tmp_path), "--prefetch", 4)
    until((tmp_path / "holds").exists, what=lambda: repr(running))
    running.signal(number)
    until(lambda: bq.stats("orders")["ready"] == 6, what=lambda: bq.stats("orders"))
    (tmp_path / "go").touch()
    done = running.wait(0)
    assert "handled 4, retried 0" in err(done)
    assert (tmp_path / "ended").exists() and len(bodies(bq, "orders")) == 6


@pytest.mark.parametrize("how", ["second signal", "shutdown timeout"])
def test_what_is_unfinished_goes_back(new_bq, coprocess, tmp_path, how):
    """Unchanged, attempts too; the coprocess is ended although it does not want to."""
    bq = new_bq()
    publish(bq, 6)
    before = bodies(bq, "orders")
    text = """
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin: open(sys.argv[1], "w").close()
    time.sleep(60)
    """
    options = ["--shutdown-timeout", "300ms"] if how == "shutdown timeout" else []
    running = bq.start("work", "-q", "orders", "--handle-stdio", coprocess(text, tmp_path / "holds"), *options)
    until((tmp_path / "holds").exists, what=lambda: repr(running))
    running.signal(signal.SIGTERM)
    if how == "second signal":
        until(lambda: running.signal(signal.SIGTERM) or not running.alive, what=lambda: repr(running))
    began = time.monotonic()
    done = running.wait(0, timeout=30)
    assert time.monotonic() - began < 5
    assert sorted(bodies(bq, "orders")) == sorted(before)
    assert bq.stats("orders")["ready"] == 6 and "dead-lettered 0" in err(done)


def test_it_does_not_outlive_a_worker_that_was_killed(new_bq, coprocess, tmp_path):
    bq = new_bq()
    publish(bq, 1)
    text = """
    for line in sys.stdin: open(sys.argv[1], "w").write(str(os.getpid()))
    time.sleep(60)
    """
    pid = tmp_path / "pid"
    running = bq.start("work", "-q", "orders", "--handle-stdio", coprocess(text, pid))
    until(lambda: pid.exists() and pid.read_text(), what=lambda: repr(running))
    running.kill()

    def gone():
        try:
            with open(f"/proc/{pid.read_text()}/stat") as stat:
                return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
        except FileNotFoundError:
            return True

    until(gone, what="the coprocess's end")


def test_max_with_a_coprocess(new_bq, coprocess):
    bq = new_bq()
    publish(bq, 10)
    bq.run("work", "-q", "orders", "--handle-stdio", coprocess(GOOD), "--max", 4)
    assert len(bodies(bq, "orders")) == 6 and bq.stats("orders")["ready"] == 6


def test_many(new_bq, coprocess):
    """Twenty thousand, in order, with one coprocess and one handler thread."""
    bq = new_bq()
    publish(bq, 20000)
    text = """
    expected = 0
    for line in sys.stdin:
        m = json.loads(line)
        if m["envelope"]["data"]["n"] != expected: sys.exit(9)
        expected += 1
        answer(n=m["n"], ok=True)
    """
    assert "handled 20000, retried 0" in err(work(bq, coprocess(text)))


def test_waiting_for_a_broker_that_is_not_there(new_bq, coprocess, tmp_path):
    bq = new_bq(f"sqlite:{tmp_path / 'none' / 'bq.db'}")
    done = work(bq, coprocess(GOOD), "--timeout", "500ms", exit=None, timeout=20)
    assert done.code in (69, 77, 78), done
