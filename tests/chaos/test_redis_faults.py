"""Redis under fire: what the field reported (trackers are named), servers that freeze, restart, run full, change roles."""

import json
import time

import pytest

from support import build
from support.redisserver import URN, Layout, free_port, log_ids, publish
from support.wait import until

# ---- leases ---------------------------------------------------------------------------------------------------------------


def test_a_long_handler_runs_once(new_bq, layout, tmp_path):
    """kombu#337: the lease is 2 s, the handler takes 5, two workers: one run."""
    bq = new_bq(layout.url(retry_after="2s"))
    note, ran = log_ids(tmp_path / "ran")
    publish(bq, 1)
    workers = [bq.start("work", "-q", "orders", "--exec", f"{note}; sleep 5") for _ in range(2)]
    until(lambda: len(ran()) >= 1, 10, "a run")
    until(lambda: not layout.reserved(), 20, "its end")
    for worker in workers:
        worker.stop()
    assert len(ran()) == 1 and layout.leftovers() == []


def test_the_innocent_beside_a_killer_are_worked(new_bq, list_layout, tmp_path):
    """Contract 3, crash loops: what a killed worker had merely taken ahead lapses beside the guilty message. At its
    last chance a message is taken alone, so only the guilty one ends as WorkerLost, and the drain waits for leases."""
    bq, calls = new_bq(list_layout.url(retry_after="1s")), tmp_path / "calls"
    publish(bq, 5)
    handler = f"d=$(cat); echo $d >>{calls}; case $d in *:0}}) kill -9 $PPID;; esac"
    deaths = 0
    while (worker := bq.run("work", "-q", "orders", "--exec", handler, "--drain=all", exit=None)).code != 1:
        assert worker.code == -9, worker
        deaths += 1
        assert deaths <= 3
    seen = [json.loads(line)["n"] for line in calls.read_text().splitlines()]
    assert deaths == 3 and sorted(seen) == [0, 0, 0, 1, 2, 3, 4]
    assert [json.loads(record)["data"]["n"] for record in list_layout.ready("orders.dlq")] == [0]
    assert list_layout.leftovers() == [] and list_layout.ready() == []


def test_a_drain_waits_for_what_others_hold(new_bq, layout, tmp_path):
    """What another worker holds may come back: a drain ends when that is settled as well."""
    bq, go, ran = new_bq(layout.url()), tmp_path / "go", tmp_path / "ran"
    publish(bq, 1)
    slow = bq.start("work", "-q", "orders", "--max", 1, "--exec", f"while [ ! -e {go} ]; do sleep 0.05; done; exit 1")
    until(layout.reserved, 10, "its reservation")
    drain = bq.start("work", "-q", "orders", "--drain", "--exec", f"echo x >>{ran}")
    go.touch()
    slow.wait(0)
    drain.wait(0)
    assert ran.read_text() == "x\n", "it was retried before the drain ended"


def test_a_message_that_kills_its_worker_ends_on_the_dead_letter_queue(new_bq, layout, tmp_path):
    """sidekiq#4633: lapses are counted; at the limit it is buried without a handler. The body's attempts stay on the
    list layout (7.1)."""
    bq = new_bq(layout.url(retry_after="1s"))
    note, ran = log_ids(tmp_path / "ran")
    publish(bq, 1)
    for run in range(3):
        worker = bq.start("work", "-q", "orders", "--exec", f"{note}; sleep 60")
        until(lambda: len(ran()) == run + 1, 20, f"run {run + 1}")
        worker.kill()
    worker = bq.start("work", "-q", "orders", "--exec", note)
    [record] = until(lambda: layout.ready("orders.dlq"), 20, "its record")
    worker.stop(exit=None)
    block = json.loads(record)["dead_letter"]
    assert len(ran()) == 3
    assert (block["reason"], block["exception"], block["attempts"]) == ("failed", "WorkerLost", 3)
    assert layout.leftovers() == [] and layout.ready() == []


def test_another_worker_takes_over_without_a_restart(new_bq, layout, tmp_path):
    """sidekiq#5540; and sidekiq#4611: what is not due is left alone, whoever starts."""
    bq = new_bq(layout.url(retry_after="4s"))
    note, ran = log_ids(tmp_path / "ran")
    [id] = publish(bq, 1)
    victim = bq.start("work", "-q", "orders", "--exec", "sleep 60", "--prefetch", "1")
    until(layout.reserved, 10, "its reservation")
    heir = bq.start("work", "-q", "orders", "--exec", note)
    bq.run("publish", "-q", "orders", URN, "{}")
    until(lambda: len(ran()) == 1, 10, "the other one")
    victim.kill()
    until(lambda: id in ran(), 15, "the abandoned one")
    heir.stop()
    assert len(ran()) == 2


def test_elements_without_a_deadline_are_adopted_when_asked(new_bq, list_layout):
    """laravel#22939: an old peer died between the pop and the deadline."""
    bq = new_bq(list_layout.url())
    [id] = publish(bq, 1)
    assert list_layout.redis.lmove("orders", "orders:processing", "LEFT", "RIGHT")
    bq.run("work", "-q", "orders", "--print", "--drain")
    assert len(list_layout.reserved()) == 1, "left alone"
    adopting = new_bq(list_layout.url(adopt="2s", retry_after="1s"))
    started = time.monotonic()
    done = adopting.run("work", "-q", "orders", "--print", "--max", "1")
    assert time.monotonic() - started >= 1
    assert json.loads(done.out)["meta"]["id"] == id
    assert list_layout.leftovers() == []


# ---- connections ------------------------------------------------------------------------------------------------------------


def test_late_replies_answer_nothing(new_bq, server, tmp_path):
    """hiredis#306: the server freezes during work, answers after everybody gave up; every message is still handled."""
    one = server()
    bq = new_bq(one.url(timeout="500ms", retry_after="2s", reconnect_max="200ms"))
    note, ran = log_ids(tmp_path / "ran")
    worker = bq.start("work", "-q", "orders", "--exec", note, "--concurrency", "4")
    ids = publish(bq, 200)
    for _ in range(3):
        seen = len(ran())
        until(lambda: len(ran()) > seen, 10, "work")
        one.freeze()
        time.sleep(1.2)  # longer than the time-out: the frozen time itself is what is tested
        one.thaw()
    until(lambda: set(ids) <= set(ran()), 40, "every message")
    until(lambda: not one.client().exists("orders:processing"), 20, "every settlement")
    worker.stop()
    assert one.client().keys("*") in ([], [b"orders:processing:lapses"])


def test_a_frozen_server_holds_nobody(new_bq, server):
    """A publish ends by its time-out, and the command by a signal."""
    one = server()
    bq = new_bq(one.url(timeout="1s", connect_timeout="1s"))
    worker = bq.start("work", "-q", "orders", "--print")
    until(lambda: len(one.client().client_list()) >= 2, 10, "the worker")
    one.freeze()
    started = time.monotonic()
    bq.run("publish", "-q", "orders", "--timeout", "1s", URN, "{}", exit=None)
    assert time.monotonic() - started < 8
    worker.signal(15)
    worker.wait(exit=None, timeout=15)
    one.thaw()


def test_a_restart_loses_nothing(new_bq, server, tmp_path):
    """With the log synced, SIGKILL of the server keeps what was confirmed; workers go on by themselves."""
    one = server("--appendonly", "yes", "--appendfsync", "always")
    bq = new_bq(one.url(reconnect_max="200ms", retry_after="3s"))
    note, ran = log_ids(tmp_path / "ran")
    ids = publish(bq, 100)
    worker = bq.start("work", "-q", "orders", "--exec", note, "--concurrency", "2")
    for _ in range(3):
        seen = len(ran())
        until(lambda: len(ran()) > seen, 10, "work")
        one.kill()
        one.start()
    until(lambda: set(ids) <= set(ran()), 40, "every message")
    until(lambda: not one.client().exists("orders:processing"), 20, "every settlement")
    worker.stop()


def test_out_of_memory_removes_nothing(new_bq, server, tmp_path):
    """sidekiq#5558: removing is allowed when writing is not. The message stays until there is memory again."""
    for name in ("list", "laravel"):
        one = server()
        layout = Layout(one, name)
        bq = new_bq(layout.url(retry_after="3s"))
        go = tmp_path / f"go-{name}"
        publish(bq, 1)
        worker = bq.start("work", "-q", "orders", "--exec", f"while [ ! -e {go} ]; do sleep 0.05; done; exit 65")
        until(layout.reserved, 10, "its reservation")
        one.client().config_set("maxmemory", 1)
        go.touch()
        worker.until_err(rb"(?i)OOM|memory|not confirmed|settle", 10)
        assert len(layout.reserved()) == 1, f"{name}: it is there still"
        one.client().config_set("maxmemory", 0)
        until(lambda: layout.ready("orders.dlq"), 30, "its record, in the end")
        until(lambda: layout.leftovers() == [], 10, "nothing left")
        worker.stop(exit=None)


@pytest.mark.parametrize("name", ["list", "laravel"])
def test_publishing_to_a_full_server_is_refused(new_bq, server, name):
    one = server()
    layout = Layout(one, name)
    one.client().config_set("maxmemory", 1)
    done = new_bq(layout.url()).run("publish", "-q", "orders", "--timeout", "2s", URN, "{}", exit=75)
    assert b"OOM" in done.err
    one.client().config_set("maxmemory", 0)
    assert layout.ready() == []


# ---- who may --------------------------------------------------------------------------------------------------------------------


def test_passwords_of_any_kind(new_bq, server):
    """celery-once#135: escaped they work, a raw # is explained; a wrong one is told at once and never printed."""
    one = server("--requirepass", "p#%@")
    url = f"redis://:p%23%25%40@127.0.0.1:{one.port}/2"
    new_bq(url).run("publish", "-q", "orders", URN, "{}")
    assert one.client(2, password="p#%@").llen("orders") == 1
    raw = new_bq(f"redis://:p#%@127.0.0.1:{one.port}/2").run("stats", exit=64)
    assert b"%23" in raw.err
    for verb in (["publish", "-q", "orders", URN, "{}"], ["work", "-q", "orders", "--print"], ["stats", "-q", "orders"]):
        done = new_bq(f"redis://:wrong-secret@127.0.0.1:{one.port}/2").run(*verb, exit=77, timeout=10)
        assert b"wrong-secret" not in done.err and b"WRONGPASS" in done.err
    new_bq(f"redis://127.0.0.1:{one.port}/2").run("stats", "-q", "orders", exit=77, timeout=10)


def test_an_acl_user(new_bq, server):
    one = server()
    one.client().acl_setuser(
        "shop", enabled=True, passwords=["+s:@/"], keys=["orders*"], commands=["+@all", "-@admin", "-@dangerous"]
    )
    bq = new_bq(f"redis://shop:s%3A%40%2F@127.0.0.1:{one.port}/0")
    bq.run("publish", "-q", "orders", URN, "{}")
    bq.run("work", "-q", "orders", "--print", "--max", "1")
    done = bq.run("publish", "-q", "other", URN, "{}", exit=77)
    assert b"NOPERM" in done.err or b"permission" in done.err


def test_a_unix_socket(new_bq, server, tmp_path):
    one = server("--unixsocket", str(tmp_path / "redis.sock"))
    bq = new_bq(f"redis+unix://{tmp_path}/redis.sock?db=3")
    bq.run("publish", "-q", "orders", URN, "{}")
    assert one.client(3).llen("orders") == 1
    bq.run("work", "-q", "orders", "--print", "--max", "1")


def test_scripts_that_are_flushed_are_loaded_again(new_bq, server, tmp_path):
    one = server()
    bq = new_bq(one.url())
    note, ran = log_ids(tmp_path / "ran")
    worker = bq.start("work", "-q", "orders", "--exec", note)
    for n in range(5):
        publish(bq, 10)
        until(lambda: len(ran()) == 10 * (n + 1), 10, "work")
        one.client().script_flush()
    worker.stop()
    assert len(set(ran())) == 50 and one.client().keys("*") == []


def test_a_key_of_another_kind_is_told(new_bq, server):
    one = server()
    one.client().set("orders", "text")
    done = new_bq(one.url()).run("work", "-q", "orders", "--print", exit=78, timeout=10)
    assert b"another kind" in done.err


# ---- roles -----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def sentinels(server, tmp_path):
    master = server()
    replica = server("--replicaof", "127.0.0.1", str(master.port))
    until(lambda: replica.client().info("replication")["master_link_status"] == "up", 20, "the replica")
    watchers = []
    for n in range(3):
        port = free_port()
        conf = tmp_path / f"sentinel-{n}.conf"
        conf.write_text(
            f"port {port}\nbind 127.0.0.1\nsentinel monitor shop 127.0.0.1 {master.port} 2\n"
            "sentinel down-after-milliseconds shop 1000\nsentinel failover-timeout shop 5000\n"
        )
        watchers.append(server(str(conf), port=port, sentinel=True))
    until(lambda: watchers[0].client().sentinel_master("shop")["num-other-sentinels"] == 2, 30, "the Sentinels")
    until(lambda: watchers[0].client().sentinel_master("shop")["num-slaves"] == 1, 30, "their replica")
    return master, replica, watchers


@pytest.mark.slow
def test_failover_under_sentinel(new_bq, sentinels, tmp_path):
    """redis-py#460: the master dies; publisher and worker find the new one, and only what the old one had not
    replicated yet may be missing - here nothing, because its replica was up to date."""
    master, replica, watchers = sentinels
    hosts = ",".join(f"127.0.0.1:{w.port}" for w in watchers)
    bq = new_bq(f"redis+sentinel://{hosts}/0?master=shop&reconnect_max=500ms&retry_after=3s&timeout=3s")
    note, ran = log_ids(tmp_path / "ran")
    ids = publish(bq, 50)
    worker = bq.start("work", "-q", "orders", "--exec", f"{note}; sleep 0.05")
    until(lambda: len(ran()) > 5, 20, "work")
    master.client().execute_command("WAIT", 1, 1000)
    master.kill()
    until(lambda: set(ids) <= set(ran()), 60, "every message, from the new master")
    more = publish(bq, 10)
    until(lambda: set(more) <= set(ran()), 20, "new ones")
    until(lambda: not replica.client().exists("orders:processing"), 20, "every settlement")
    worker.stop()


@pytest.mark.slow
def test_what_a_failover_can_lose(new_bq, sentinels):
    """Replication is asynchronous: the newest messages that the old master had confirmed and not passed on are gone, the
    youngest first. Nothing older is, and nothing that the replica had acknowledged."""
    master, replica, watchers = sentinels
    hosts = ",".join(f"127.0.0.1:{w.port}" for w in watchers)
    bq = new_bq(f"redis+sentinel://{hosts}/0?master=shop&reconnect_max=500ms&timeout=3s")
    safe = publish(bq, 50)
    assert master.client().execute_command("WAIT", 1, 5000) == 1
    replica.freeze()
    bulk = "".join('{"n":%d,"text":"%s"}\n' % (n, "x" * 100000) for n in range(200))  # more than the kernel keeps for it
    tail = bq.run("publish", "-q", "orders", URN, "--lines", input=bulk).out.decode().split()
    assert len(tail) == 200
    master.kill()
    replica.thaw()
    until(lambda: replica.client().info("replication")["role"] == "master", 60, "the failover")
    ran = bq.run("work", "-q", "orders", "--exec", 'echo "$BQ_ID"', "--drain", timeout=60).out.decode().split()
    assert ran[:50] == safe, "what the replica had acknowledged is there"
    assert ran[50:] == tail[: len(ran) - 50], "of the rest the oldest"
    assert len(ran) < 250, "this failover lost nothing: it shows nothing"


@pytest.mark.slow
def test_settlements_that_a_failover_undoes(new_bq, sentinels):
    """What was settled and not passed on is there again on the new master, each message once: handled again, not lost."""
    master, replica, watchers = sentinels
    hosts = ",".join(f"127.0.0.1:{w.port}" for w in watchers)
    bq = new_bq(f"redis+sentinel://{hosts}/0?master=shop&reconnect_max=500ms&timeout=3s")
    ids = publish(bq, 20)
    assert master.client().execute_command("WAIT", 1, 5000) == 1
    replica.freeze()
    bulk = "".join('{"n":%d,"text":"%s"}\n' % (n, "x" * 100000) for n in range(200))  # more than the kernel keeps for it
    bq.run("publish", "-q", "bulk", URN, "--lines", input=bulk)
    work = ("work", "-q", "orders", "--exec", 'echo "$BQ_ID"', "--drain")
    assert bq.run(*work, timeout=60).out.decode().split() == ids
    assert not master.client().exists("orders", "orders:processing", "orders:processing:deadlines")
    master.kill()
    replica.thaw()
    until(lambda: replica.client().info("replication")["role"] == "master", 60, "the failover")
    assert bq.run(*work, timeout=60).out.decode().split() == ids
    assert bq.run(*work, timeout=60).out == b""


@pytest.mark.slow
def test_a_master_that_was_demoted_is_left(new_bq, sentinels, tmp_path):
    """Field, redis-py#460: the old master goes on living as a replica, and says READONLY on connections that stay open.
    The Sentinels are asked again, and all goes on at the new one."""
    master, replica, watchers = sentinels
    hosts = ",".join(f"127.0.0.1:{w.port}" for w in watchers)
    bq = new_bq(f"redis+sentinel://{hosts}/0?master=shop&reconnect_max=500ms&timeout=3s&retry_after=8s")
    note, ran = log_ids(tmp_path / "ran")
    go = tmp_path / "go"
    # With one message in hand it does not wait for more: a connection that waits is told before.
    worker = bq.start("work", "-q", "orders", "--prefetch", 1, "--exec", f"{note}; while [ ! -e '{go}' ]; do sleep 0.05; done")
    ids = publish(bq, 5)
    until(lambda: ran() == ids[:1], 20, "a message in hand")
    assert master.client().execute_command("WAIT", 1, 5000) == 1
    watchers[0].client().execute_command("SENTINEL", "FAILOVER", "shop")
    until(lambda: all(port_of_master(w) == replica.port for w in watchers), 60, "the failover")
    # The Sentinels would do so some seconds later, and cut its clients' connections.
    master.client().replicaof("127.0.0.1", replica.port)
    go.touch()
    more = publish(bq, 5)
    until(lambda: set(ran()) == set(ids + more), 20, "work at the new master")
    assert master.client().info("errorstats")["errorstat_READONLY"]["count"] > 0, "it was told so"
    until(lambda: replica.client().keys("*") == [], 20, "the end of its lease, and its settlement")
    worker.stop()
    assert sorted(ran()) == sorted(ids[:1] + ids + more), "what was refused was not settled, and comes again"


def port_of_master(watcher):
    return int(watcher.client().execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "shop")[1])


def test_a_server_that_becomes_a_replica_is_left(new_bq, server, tmp_path):
    """READONLY closes the connection; once it is a master again, everything goes on."""
    one = server()
    bq = new_bq(one.url(reconnect_max="200ms", retry_after="3s"))
    note, ran = log_ids(tmp_path / "ran")
    worker = bq.start("work", "-q", "orders", "--exec", note)
    until(lambda: len(one.client().client_list()) >= 2, 10, "the worker")
    one.client().replicaof("127.0.0.1", free_port())
    worker.until_err(rb"READONLY|UNBLOCKED|MASTERDOWN|LOADING", 20)
    one.client().replicaof("NO", "ONE")
    ids = publish(bq, 20)
    until(lambda: set(ids) <= set(ran()), 20, "every message")
    worker.stop()


# ---- kills ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_kills_lose_nothing(new_bq, layout, tmp_path):
    """Mixed workers, of ours and the peer's, are killed over and over, each time in the middle of a new share of the
    messages: every message is handled, none is left."""
    rounds, count = build.scale("BQ_KILL_ROUNDS", 20), build.scale("BQ_KILL_MESSAGES", 100000)
    bq = new_bq(layout.url(retry_after="1s"))
    ids = []
    peer = tmp_path / "peer.py"
    peer.write_text(
        "import sys\nfrom babelqueue import BabelQueue\nfrom babelqueue.redis_transport import RedisTransport\n"
        f"app = BabelQueue(transport=RedisTransport({layout.server.url()!r}, laravel_compat={layout.name == 'laravel'},"
        "retry_after=1), queue='orders', max_attempts=100)\n"
        "out = open(sys.argv[1], 'a')\n"
        f"@app.handler({URN!r})\ndef handle(data, meta):\n"
        "    out.write(meta['id'] + '\\n'); out.flush()\n"
        "app.consume(timeout=0.5)\n"
    )
    import subprocess
    import sys

    outputs, peers = [], []

    def start(index):
        path = tmp_path / f"ran-{index}"
        outputs.append(path)
        if index % 3 == 2:
            process = subprocess.Popen([sys.executable, str(peer), str(path)], stderr=subprocess.DEVNULL)
            peers.append(process)
            return process
        note = f"import sys\nfor line in sys.stdin:\n import json; m=json.loads(line); open({str(path)!r},'a').write(m['id']+'\\n'); print(json.dumps({{'n':m['n'],'ok':True}}), flush=True)"
        script = tmp_path / "note.py"
        script.with_name(f"note-{index}.py").write_text(note)
        return bq.start(
            "work", "-q", "orders", "--handle-stdio", f"{sys.executable} {tmp_path}/note-{index}.py", "--max-attempts", "100"
        )

    def ran():
        return {id for path in outputs if path.exists() for id in path.read_text().split()}

    try:
        workers = [start(n) for n in range(3)]
        for round in range(rounds):
            share = publish(bq, count // rounds)
            ids += share
            until(lambda: not ran().isdisjoint(share), 60, "work on the new share")
            workers[round % 3].kill()
            workers[round % 3] = start(len(outputs) + (round % 3 - len(outputs)) % 3)
        until(lambda: ran() >= set(ids), 120, lambda: f"all: {len(ran())} of {len(ids)}")
        until(lambda: layout.leftovers() == [] and layout.ready() == [], 20, "nothing left")
        assert layout.ready("orders.dlq") == []
    finally:
        for process in peers:
            process.kill()
            process.wait()


