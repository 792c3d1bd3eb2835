"""`bq work --exec`, `--handle` and `--print`: what a handler gets, what its end means, and how the run ends."""

import json
import os
import re
import shlex
import signal
import subprocess
import time

import pytest

from support import build, sqlitefile
from support.cli import environment
from support.pipes import Talk
from support.wait import until


def err(done):
    return done.err.decode()


def bodies(bq, queue):
    return [m.body for m in sqlitefile.read(bq.url.removeprefix("sqlite:")) if m.queue == queue]


def dead(bq, queue="orders.dlq"):
    return [json.loads(body)["dead_letter"] for body in bodies(bq, queue)]


def publish(bq, *options, queue="orders", urn="urn:x", data="{}"):
    return bq.run("publish", "-q", queue, urn, data, *options).out.decode().strip()


def publish_many(bq, count, queue="orders"):
    bq.run("publish", "-q", queue, "--lines", "urn:x", input="".join(f'{{"n":{n}}}\n' for n in range(count)))


def work(bq, handler, *options, **more):
    return bq.run("work", "-q", "orders", "--exec", handler, "--drain", *options, **more)


def gone(pid):
    """A process that has ended, or only waits to be collected."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


# ---- what a handler gets ---------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_data_environment_and_envelope(new_bq, tmp_path):
    bq = new_bq()
    id = publish(bq, "--header", "traceparent=00-1-2-03", "--header", "x-tenant.id=é", "--trace-id", "t", data='{"a": [1.0, 2]}')
    body = bodies(bq, "orders")[0]
    done = work(bq, 'cat; echo; cat "$BQ_ENVELOPE_FILE" "$BQ_ENVELOPE_FILE"; echo; env | sort')
    data, envelope, *env = done.out.decode().splitlines()
    assert data == '{"a":[1.0,2]}' and envelope.encode() == body + body
    mine = dict(line.split("=", 1) for line in env if line.startswith(("BQ_", "TRACEPARENT")))
    assert mine.pop("BQ_URL") == bq.url
    assert mine.pop("BQ_CREATED_AT") == str(json.loads(body)["meta"]["created_at"])
    assert re.fullmatch(r"/(dev|proc/self)/fd/\d+", mine.pop("BQ_ENVELOPE_FILE"))
    assert mine == {
        "BQ_URN": "urn:x", "BQ_ID": id, "BQ_TRACE_ID": "t", "BQ_ATTEMPTS": "0", "BQ_QUEUE": "orders", "BQ_LANG": "c", "BQ_REPLAY": "0",
        "BQ_HEADER_TRACEPARENT": "00-1-2-03", "BQ_HEADER_X_TENANT_ID": "é", "TRACEPARENT": "00-1-2-03",
    }  # fmt: skip


def test_what_another_message_left_is_not_there(new_bq):
    """A worker that was started by a handler itself: no stale variables."""
    bq = new_bq()
    publish(bq)
    stale = {"BQ_HEADER_A": "1", "TRACEPARENT": "x", "BQ_ID": "x", "BQ_ENVELOPE_FILE": "/x"}
    done = work(bq, "env", env=stale)
    env = dict(line.split("=", 1) for line in done.out.decode().splitlines() if "=" in line)
    assert "BQ_HEADER_A" not in env and "TRACEPARENT" not in env and env["BQ_ID"] != "x"


def test_odd_values(new_bq):
    """Line breaks pass, NUL becomes U+FFFD, equal names keep the first, what is too long is left out with a warning."""
    bq = new_bq()
    line = {"urn": "urn:x", "data": {}, "headers": {"a": "1\n2", "b-c": "\0nul\0", "B_C": "second", "long": "x" * 70000, "last": "z"}}
    bq.run("publish", "-q", "orders", "--lines", input=json.dumps(line))
    done = work(bq, "printf '%s|' \"$BQ_HEADER_A\" \"$BQ_HEADER_B_C\" \"${BQ_HEADER_LONG-none}\" \"$BQ_HEADER_LAST\"")
    assert done.out.decode() == "1\n2|\ufffdnul\ufffd|none|z|"
    assert "BQ_HEADER_LONG is left out" in err(done)


def test_headers_by_the_hundred(new_bq):
    """More than an environment holds: the handler still runs."""
    bq = new_bq()
    line = {"urn": "urn:x", "data": {}, "headers": {f"h{n}": "x" * 60000 for n in range(40)}}
    bq.run("publish", "-q", "orders", "--lines", input=json.dumps(line))
    done = work(bq, "env | grep -c BQ_HEADER_")
    assert 1 <= int(done.out) <= 9 and "too long together" in err(done)


def test_headers_by_the_ten_thousand(new_bq):
    """Whoever publishes chooses how many there are: neither publishing nor working may take the square of it."""
    bq = new_bq()
    line = {"urn": "urn:x", "data": {}, "headers": {f"h{n}": "v" for n in range(150000)}}
    began = time.monotonic()
    bq.run("publish", "-q", "orders", "--lines", "--header", "h7=replaced", input=json.dumps(line))
    done = work(bq, "env | grep -c BQ_HEADER_; echo $BQ_HEADER_H7")
    assert done.lines == [b"1024", b"v"] and "148976 headers are left out" in err(done)
    assert time.monotonic() - began < 20


def test_a_line_that_repeats_a_header(new_bq):
    """The last one counts, as everywhere."""
    bq = new_bq()
    line = '{"urn":"urn:x","data":{},"headers":{"a":"1","b":"2","a":"3"}}'
    bq.run("publish", "-q", "orders", "--lines", "--header", "b=0", input=line)
    assert work(bq, "echo $BQ_HEADER_A $BQ_HEADER_B").lines == [b"3 2"]


@pytest.mark.parametrize("handler", ["true", "exec <&-; true", "head -c 1 >/dev/null", "cat >/dev/null"])
def test_large_data_and_handlers_that_do_not_read(new_bq, handler):
    """Nothing waits for a handler that takes its data, or a part of it, or not."""
    bq = new_bq()
    bq.run("publish", "-q", "orders", "urn:x", input=json.dumps({"t": "x" * 3_000_000}))
    work(bq, handler)
    assert bodies(bq, "orders") == []


def test_data_arrives_whole(new_bq, tmp_path):
    bq = new_bq()
    text = json.dumps({"t": "é" * 1_000_000}, ensure_ascii=False)
    bq.run("publish", "-q", "orders", "urn:x", input=text)
    work(bq, f"cat >{tmp_path}/got")
    assert (tmp_path / "got").read_text() == text.replace(": ", ":")


def test_descriptors_of_a_handler(new_bq):
    """stdin, stdout, stderr and the envelope; nothing else of bq's."""
    bq = new_bq()
    publish(bq)
    done = work(bq, "ls /proc/self/fd")
    open_ones = set(done.out.decode().split())
    assert {"0", "1", "2"} <= open_ones and len(open_ones) <= 5, open_ones


def test_handlers_start_as_from_a_shell(new_bq):
    """No signal ignored or blocked, and a process group of their own."""
    bq = new_bq()
    publish(bq)
    done = work(bq, "cut -d' ' -f5 /proc/$$/stat; echo $$; exec grep -E 'SigBlk|SigIgn' /proc/self/status")
    group, pid, blocked, ignored = done.out.decode().split("\n")[:4]
    assert pid == group
    own = 0b11 << 31  # 32 and 33 are the C library's, which posix_spawn ignores
    assert int(blocked.split()[1], 16) == 0 and int(ignored.split()[1], 16) & ~own == 0


def test_handlers_by_urn(new_bq):
    """--handle by URN, --exec for the rest; without it the strategy for unknown ones."""
    bq = new_bq()
    for urn in ("urn:a", "urn:b", "urn:c"):
        publish(bq, urn=urn)
    done = work(bq, "echo rest $BQ_URN", "--handle", "urn:a=echo first $BQ_URN", "--handle", "urn:b=echo 'x=y'")
    assert sorted(done.lines) == [b"first urn:a", b"rest urn:c", b"x=y"]
    publish(bq, urn="urn:z")
    done = bq.run("work", "-q", "orders", "--handle", "urn:a=true", "--drain", "--max-attempts", 1, exit=1)
    assert "no handler" in err(done)
    assert dead(bq)[0]["error"] == "No handler mapped for URN [urn:z]."
    assert (dead(bq)[0]["reason"], dead(bq)[0]["exception"]) == ("unknown_urn", "UnknownUrnError")


@pytest.mark.parametrize("strategy, status, ready, delayed, died", [
    ("fail", 1, 0, 0, 1), ("delete", 1, 0, 0, 0), ("dead_letter", 1, 0, 0, 1), ("release", 0, 0, 1, 0),
])  # fmt: skip
def test_unknown_urns(new_bq, strategy, status, ready, delayed, died):
    bq = new_bq()
    publish(bq, urn="urn:z")
    bq.run("work", "-q", "orders", "--handle", "urn:a=true", "--unknown", strategy, "--unknown-delay", "1h", "--drain", exit=status)
    stats = bq.stats("orders")
    assert (stats["ready"], stats["delayed"], stats["dead"]) == (ready, delayed, died)


def test_a_release_without_a_pause_is_warned_of(new_bq):
    bq = new_bq()
    work = ("work", "-q", "orders", "--handle", "urn:a=true", "--unknown", "release", "--drain")
    assert "--unknown-delay" in err(bq.run(*work))
    assert "--unknown-delay" not in err(bq.run(*work, "--unknown-delay", "1s"))


# ---- what its end means ----------------------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize(
    "handler, exception, error",
    [
        ("exit 3", "exit status 3", None),
        ("echo one >&2; echo two >&2; exit 1", "exit status 1", "two"),
        ("printf 'no line feed' >&2; exit 1", "exit status 1", "no line feed"),
        ("echo last >&2; echo >&2; echo ' ' >&2; exit 1", "exit status 1", "last"),
        ("printf 'dos\\r\\n' >&2; exit 1", "exit status 1", "dos"),
        ("kill -SEGV $$", "signal 11", None),
        ("echo bye >&2; kill -KILL $$", "signal 9", "bye"),
        ("exit 'x", "exit status 2", ""),
    ],
)
def test_failures(new_bq, handler, exception, error):
    """Every other end than 0 and 65 is a failure: retried, then dead-lettered with its name and the last line said."""
    bq = new_bq()
    publish(bq)
    done = work(bq, handler, "--max-attempts", 2, exit=1)
    (block,) = dead(bq)
    assert (block["reason"], block["exception"], block["attempts"]) == ("failed", exception, 2)
    if error is None:
        assert block["error"] is None
    else:
        assert error in block["error"] and "\n" not in block["error"]
    assert f"{exception}" in err(done) and "to be retried" in err(done) and "dead-lettered" in err(done)


@pytest.mark.smoke
@pytest.mark.parametrize("how", ["--exec", "--handle"])
@pytest.mark.parametrize("command, status", [("no-such-command-anywhere", 127), ("./handler", 126)])
def test_a_handler_that_cannot_be_run(new_bq, tmp_path, how, command, status):
    """126 and 127 of a command that never succeeded: the run ends with 78, and every message is given back as it was."""
    bq = new_bq()
    (tmp_path / "handler").write_text("not executable")
    publish_many(bq, 5)
    before = sorted(bodies(bq, "orders"))
    handler = [how, command if how == "--exec" else f"urn:x={command}"]
    done = bq.run("work", "-q", "orders", *handler, "--concurrency", 3, exit=78)
    assert err(done).count(f"cannot run the handler '{command}' (exit status {status})") == 1
    assert sorted(bodies(bq, "orders")) == before and dead(bq) == []
    assert bq.stats("orders") == {"queue": "orders", "ready": 5, "delayed": 0, "in_flight": 0, "dead": 0}
    assert "retried 0, dead-lettered 0" in err(done)


@pytest.mark.parametrize("first", [0, 65])
def test_a_handler_that_could_be_run_before(new_bq, tmp_path, first):
    """Once it has judged a message, 127 is a failure like others: some message makes it call what is not there."""
    bq = new_bq()
    publish_many(bq, 2)
    done = work(bq, f"mkdir {tmp_path}/once 2>&- && exit {first}; exit 127", "--max-attempts", 2, exit=1)
    assert dead(bq)[-1]["exception"] == "exit status 127" and "cannot run" not in err(done)
    assert bodies(bq, "orders") == []


def test_a_poison_message_has_no_route(new_bq):
    bq = new_bq()
    bq.run("publish", "-q", "orders", "--raw", "not json")
    assert "warning: orders: (no URN), attempt 0: poison" in err(work(bq, "true", exit=1))


def test_rejected(new_bq):
    """65: dead-lettered at once."""
    bq = new_bq()
    publish(bq)
    done = work(bq, "echo 'no such order' >&2; exit 65", exit=1)
    (block,) = dead(bq)
    assert (block["reason"], block["exception"], block["error"], block["attempts"]) == ("failed", "exit status 65", "no such order", 1)
    assert "retried 0, dead-lettered 1" in err(done)


@pytest.mark.parametrize("character", ["x", "é", "☕", "😀"])
def test_a_long_last_line_is_cut(new_bq, character):
    """At 1 KiB, between characters; what comes before it is no part of it."""
    bq = new_bq()
    publish(bq)
    work(bq, f"echo before >&2; printf 'y' >&2; yes '{character}' | head -2000 | tr -d '\\n' >&2; exit 65", exit=1)
    error = dead(bq)[0]["error"]
    assert error == ("y" + character * 2000).encode()[:1024].decode(errors="ignore")


def test_stderr_that_is_no_text(new_bq):
    bq = new_bq()
    publish(bq)
    work(bq, "printf 'a\\377b\\000c\\n' >&2; exit 65", exit=1)
    assert dead(bq)[0]["error"] == "a\ufffdb\0c"


def test_streams_pass_through(new_bq):
    """stdout goes to stdout, stderr to stderr, a megabyte of it too; only results stand on stdout."""
    bq = new_bq()
    publish(bq)
    done = work(bq, "echo out; echo err >&2; yes 0123456 | head -131072 >&2")
    assert done.lines == [b"out"]
    assert err(done).startswith("err\n") and err(done).count("0123456\n") == 131072
    assert err(done).splitlines()[-1].startswith("bq: handled 1")


def test_a_process_left_behind_is_not_waited_for(new_bq):
    """The handler's own end counts, even when a child of it holds its stderr."""
    bq = new_bq()
    publish(bq)
    began = time.monotonic()
    done = work(bq, "sleep 60 >/dev/null & echo $!; exit 0")
    assert time.monotonic() - began < 20
    os.kill(int(done.out), signal.SIGKILL)


@pytest.mark.parametrize("handler, exception", [("echo slow >&2; sleep 60", "slow"), ("sleep 60", "no end after 300 ms")])
def test_handler_timeout(new_bq, handler, exception):
    """--handler-timeout ends the group, children included, and counts as failed."""
    bq = new_bq()
    publish(bq)
    began = time.monotonic()
    work(bq, f"sleep 61 & echo $!; {handler}", "--handler-timeout", "300ms", "--max-attempts", 1, exit=1)
    assert time.monotonic() - began < 20
    (block,) = dead(bq)
    assert (block["exception"], block["error"]) == ("HandlerTimeout", exception)


def test_handler_timeout_ends_the_whole_group(new_bq, tmp_path):
    """SIGTERM first; a handler that ignores it, and the children it has, are killed soon after."""
    bq = new_bq()
    publish(bq)
    pids = tmp_path / "pids"
    handler = f"trap 'echo term >>{tmp_path}/term' TERM; sleep 60 & echo $! $$ >{pids}; while :; do wait; done"
    work(bq, handler, "--handler-timeout", "200ms", "--max-attempts", 1, exit=1, timeout=30)
    assert (tmp_path / "term").read_text() == "term\n"
    until(lambda: all(gone(pid) for pid in pids.read_text().split()), what="the group's end")


def test_no_handler_can_be_started(new_bq):
    """No processes left: the machine's fault, so the message goes back with its attempts as they were."""
    bq = new_bq()
    publish(bq)
    body = bodies(bq, "orders")
    limited = new_bq(wrap=["bash", "-c", 'ulimit -n 12; exec "$@"', "limited"])
    running = limited.start("work", "-q", "orders", "--exec", "true", "--shutdown-timeout", "0")
    running.until_err(rb"cannot start a handler")
    running.stop()
    assert bodies(bq, "orders") == body and bq.stats("orders")["ready"] == 1
    # With --max the run ends without having done what it was asked for: try again.
    done = limited.run("work", "-q", "orders", "--exec", "true", "--max", 1, exit=75)
    assert "cannot start a handler: Too many open files" in err(done) and bodies(bq, "orders") == body


# ---- options of the consumer -------------------------------------------------------------------------------------------------


def test_retries_with_backoff(new_bq):
    """--retry-backoff, --retry-multiplier, --retry-max: the pauses between attempts."""
    bq = new_bq()
    publish(bq)
    began = time.monotonic()
    done = bq.run(
        "work", "-q", "orders", "--exec", "date +%s.%N; exit 1", "--drain=all", "--max-attempts", 4, "--retry-backoff", "200ms",
        "--retry-multiplier", 3, "--retry-max", "400ms", exit=1,
    )  # fmt: skip
    times = [float(line) for line in done.lines]
    gaps = [b - a for a, b in zip(times, times[1:])]
    assert len(gaps) == 3 and gaps[0] >= 0.19 and gaps[1] >= 0.39 and 0.39 <= gaps[2] < 3, gaps
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("options, queue", [(["--dlq"], "orders.dlq"), (["--dlq=graveyard"], "graveyard"), ([], "orders.dlq")])
def test_dead_letter_queues(new_bq, options, queue):
    bq = new_bq()
    publish(bq)
    work(bq, "exit 65", *options, exit=1)
    assert len(bodies(bq, queue)) == 1


def test_no_dead_letter_queue(new_bq):
    """--no-dlq: dropped, told, exit 1."""
    bq = new_bq()
    publish(bq)
    done = work(bq, "exit 65", "--no-dlq", exit=1)
    assert bodies(bq, "orders.dlq") == [] == bodies(bq, "orders")
    assert "dropped 1" in err(done)


def test_lang_of_a_dead_letter(new_bq):
    bq = new_bq()
    publish(bq)
    work(bq, "exit 65", "--lang", "go", exit=1)
    assert dead(bq)[0]["lang"] == "go"


def test_concurrency(new_bq, tmp_path):
    """Four handlers at a time: each waits until all four are there."""
    bq = new_bq()
    publish_many(bq, 4)
    handler = f'touch {tmp_path}/at-$BQ_ID; until [ "$(ls {tmp_path} | grep -c at-)" -ge 4 ]; do sleep 0.02; done'
    work(bq, handler, "--concurrency", 4, timeout=30)


def test_several_queues(new_bq):
    bq = new_bq()
    for queue in ("orders", "a", "b"):
        publish_many(bq, 3, queue)
    done = work(bq, "echo $BQ_QUEUE", "-q", "a", "-q", "b")
    assert sorted(done.out.decode().split()) == ["a"] * 3 + ["b"] * 3 + ["orders"] * 3


@pytest.mark.smoke
def test_max(new_bq):
    bq = new_bq()
    publish_many(bq, 5)
    done = bq.run("work", "-q", "orders", "--exec", "cat; echo", "--max", 2)
    assert [json.loads(line)["n"] for line in done.lines] == [0, 1]
    assert bq.stats("orders")["ready"] == 3
    assert bq.run("work", "-q", "orders", "--exec", "exit 65", "--max", 1, exit=1)


# ---- the end of a run --------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_summary(new_bq):
    bq = new_bq()
    publish_many(bq, 2)
    bq.run("publish", "-q", "orders", "--raw", "nonsense")
    done = work(bq, "read line; case $line in *0*) exit 1; esac", exit=1)
    assert err(done).splitlines()[-1].startswith(
        "bq: handled 4, retried 2, dead-lettered 2, dropped 0, poison 1, gated 0, leases lost 0"
    )
    quiet = work(bq, "true", "--quiet")
    assert not quiet.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_handlers_finish(new_bq, tmp_path, number):
    """Taking stops, the handler in flight ends by itself and is settled, the rest stays; exit 0."""
    bq = new_bq()
    publish_many(bq, 3)
    started, go = tmp_path / "started", tmp_path / "go"
    running = bq.start("work", "-q", "orders", "--exec", f"touch {started}; until [ -e {go} ]; do sleep 0.02; done; echo done")
    until(started.exists, what=lambda: repr(running))
    running.signal(number)
    until(lambda: bq.stats("orders")["ready"] == 2, what=lambda: bq.stats("orders"))
    assert running.alive
    go.touch()
    done = running.wait(0)
    assert done.lines == [b"done"] and "handled 1" in err(done)
    assert len(bodies(bq, "orders")) == 2


def test_ctrl_c_does_not_reach_the_handlers(new_bq, tmp_path):
    """SIGINT to the whole foreground group, as a terminal sends it."""
    bq = new_bq()
    publish(bq)
    started, go = tmp_path / "started", tmp_path / "go"
    handler = f"touch {started}; until [ -e {go} ]; do sleep 0.02; done; echo done"
    with Talk(bq, "work", "-q", "orders", "--exec", handler, start_new_session=True) as talk:
        until(started.exists, what=lambda: repr(talk))
        os.killpg(talk.process.pid, signal.SIGINT)
        until(lambda: bq.stats("orders")["in_flight"] == 1, what=lambda: repr(talk))
        go.touch()
        assert talk.wait(0).lines == [b"done"]
    assert bodies(bq, "orders") == []


def test_a_second_signal_gives_back_at_once(new_bq, tmp_path):
    """The handler is ended, its message goes back unchanged, exit 0."""
    bq = new_bq()
    publish(bq)
    body = bodies(bq, "orders")
    pid = tmp_path / "pid"
    running = bq.start("work", "-q", "orders", "--exec", f"echo $$ >{pid}.part; mv {pid}.part {pid}; exec sleep 60")
    until(pid.exists, what=lambda: repr(running))
    # Two that come at once may be one.
    until(lambda: running.signal(signal.SIGTERM) or not running.alive, what=lambda: repr(running))
    running.wait(0)
    assert bodies(bq, "orders") == body
    until(lambda: gone(pid.read_text().strip()), what="the handler's end")
    assert bq.stats("orders")["ready"] == 1


@pytest.mark.parametrize("timeout", ["300ms", "0"])
def test_shutdown_timeout(new_bq, tmp_path, timeout):
    bq = new_bq()
    publish(bq)
    body = bodies(bq, "orders")
    pid = tmp_path / "pid"
    handler = f"echo $$ >{pid}.part; mv {pid}.part {pid}; trap '' TERM; sleep 60; sleep 60"
    running = bq.start("work", "-q", "orders", "--exec", handler, "--shutdown-timeout", timeout)
    until(pid.exists, what=lambda: repr(running))
    running.stop(0, timeout=20)
    assert bodies(bq, "orders") == body and bq.stats("orders")["ready"] == 1
    until(lambda: gone(pid.read_text().strip()), what="the handler's end")


def test_handlers_do_not_outlive_a_worker_that_was_killed(new_bq, tmp_path):
    """SIGKILL to bq: its handler, and that one's child, end soon."""
    bq = new_bq()
    publish(bq)
    pids = tmp_path / "pids"
    running = bq.start("work", "-q", "orders", "--exec", f"sleep 60 & echo $$ $! >{pids}.part; mv {pids}.part {pids}; wait")
    until(pids.exists, what=lambda: repr(running))
    running.kill()
    until(lambda: all(gone(pid) for pid in pids.read_text().split()), what="the handler's end")


def test_a_handler_that_kills_its_worker(new_bq, tmp_path):
    """sidekiq#4633: after max_attempts lost workers the message is dead-lettered, without a handler."""
    bq = new_bq(f"sqlite:{tmp_path / 'bq.db'}?retry_after=1s")
    publish(bq)
    runs = tmp_path / "runs"
    for _ in range(8):
        done = bq.run("work", "-q", "orders", "--exec", f"echo run >>{runs}; kill -9 $PPID", "--max", 1, exit=None, timeout=30)
        if done.code != -signal.SIGKILL:
            break
    assert done.code == 1, done
    assert runs.read_text().count("run") == 3
    blocks = [json.loads(m.body)["dead_letter"] for m in sqlitefile.read(tmp_path / "bq.db") if m.queue == "orders.dlq"]
    assert [(b["reason"], b["exception"]) for b in blocks] == [("failed", "WorkerLost")]


def test_drain_ends_on_an_empty_queue(new_bq):
    """kcat#313, here: with 0, whatever else was asked for."""
    bq = new_bq()
    for options in (["--print"], ["--exec", "true", "--max", 5], ["--handle-stdio", "cat"]):
        for drain in ("--drain", "--drain=all"):
            bq.run("work", "-q", "none", *options, drain, timeout=20)


# ---- print -------------------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_print(new_bq):
    bq = new_bq()
    publish(bq, "--header", "a=b", "--key", "k", data='{"n":1}')
    before = bodies(bq, "orders")
    assert bq.run("work", "-q", "orders", "--print", "--drain").lines == before
    assert bodies(bq, "orders") == []
    bq.run("publish", "-q", "orders", "--raw", input=before[0])
    assert bq.run("work", "-q", "orders", "--print", "--format", "data", "--drain").lines == [b'{"n":1}']
    publish(bq, "--header", "a=b", "--key", "k")
    (full,) = bq.run("work", "-q", "orders", "--print", "--format", "full", "--max", 1).json
    assert list(full) == ["queue", "route", "headers", "key", "attempts", "body"]
    assert (full["headers"], full["key"], full["route"], full["queue"]) == ({"a": "b"}, "k", "urn:x", "orders")


def test_a_queue_is_copied(new_bq, tmp_path):
    """`work --print --format full | publish --lines`: bodies byte for byte, headers and keys."""
    bq = new_bq()
    odd = b'{"job":"u","trace_id":"t",\n"data":{"x":1.0},"meta":{"schema_version":1,"id":"i"},"attempts":2}'
    bq.run("publish", "-q", "orders", "--raw", input=odd)
    publish_many(bq, 500)
    publish(bq, "--header", "a=b\n", "--key", "k")
    expected = bodies(bq, "orders")
    other = tmp_path / "other.db"
    pipe = f'"$0" work -q orders --print --format full --drain | "$0" publish -u sqlite:{shlex.quote(str(other))} --lines >/dev/null'
    subprocess.run(["bash", "-o", "pipefail", "-c", pipe, build.bq_path()], env=environment(BQ_URL=bq.url), check=True, timeout=60)
    copied = sqlitefile.read(other)
    assert [m.body for m in copied] == expected and {m.queue for m in copied} == {"orders"}
    assert bodies(bq, "orders") == []
    last = bq.run("peek", "-u", f"sqlite:{other}", "-q", "orders", "--format", "full").json[-1]
    assert (last["headers"], last["key"]) == ({"a": "b\n"}, "k")


def test_print_into_a_closed_pipe(new_bq):
    """The line that nobody took is given back; exit 0."""
    bq = new_bq()
    publish_many(bq, 2000)
    done = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$@" | head -1', "bash", build.bq_path(), "work", "-q", "orders", "--print"],
        env=environment(BQ_URL=bq.url), capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 1, done
    left = bodies(bq, "orders")
    assert 0 < len(left) < 2000 and bq.stats("orders")["ready"] == len(left)
    assert [json.loads(body)["data"]["n"] for body in left][-1] == 1999


def test_print_onto_a_full_disk(new_bq):
    """Nothing is acknowledged whose line was not written; exit 74."""
    bq = new_bq()
    publish_many(bq, 3)
    with open("/dev/full", "wb") as full:
        process = bq._popen(["work", "-q", "orders", "--print"], None, stdin=-1, stdout=full, stderr=-1)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 74 and b"No space left" in said
    assert len(bodies(bq, "orders")) == 3 and bq.stats("orders")["ready"] == 3


def test_print_shows_messages_as_they_come(new_bq):
    bq = new_bq()
    with Talk(bq, "work", "-q", "orders", "--print", "--format", "data") as talk:
        for n in range(3):
            publish(bq, data=f'{{"n":{n}}}')
            assert talk.line() == b'{"n":%d}' % n
        talk.signal(signal.SIGINT)
        talk.wait(0)


def test_connection_state_is_told(new_bq):
    bq = new_bq()
    assert b"bq: connected" in bq.run("work", "-q", "orders", "--print", "--drain", "-v").err
    assert b"connected" not in bq.run("work", "-q", "orders", "--print", "--drain").err
