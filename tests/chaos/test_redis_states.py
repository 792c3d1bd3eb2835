"""What a Redis server says when it can not serve right now, or not like this, each by a real server: loading, a busy
script, a replica that lost its master, a cluster, Sentinels with a password, TLS with the wrong certificates."""

import subprocess
import threading

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from support.redisserver import URN, binary, free_port, log_ids, publish
from support.wait import until


def test_a_server_that_is_loading(new_bq, server, tmp_path):
    """LOADING: the server was started again and reads its file. Publisher and worker wait, nothing is lost."""
    one = server()
    one.client().mset({f"filler:{n}": "x" for n in range(3000)})
    bq = new_bq(one.url(reconnect_max="200ms", retry_after="5s"))
    ids = publish(bq, 20)
    one.client().save()
    one.kill()
    one.options += ["--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"]
    note, ran = log_ids(tmp_path / "ran")
    one.answers = lambda: True
    one.start()
    until(lambda: loading(one), 20, "a server that loads")
    worker = bq.start("work", "-q", "orders", "--exec", note)
    more = bq.run("publish", "-q", "orders", URN, "{}", timeout=30).out.decode().split()
    until(lambda: len(ran()) == 21, 30, "every message")
    worker.stop()
    assert sorted(ran()) == sorted(ids + more)
    assert not one.client().exists("orders", "orders:processing")


def loading(one):
    try:
        one.client(retry=Retry(NoBackoff(), 0)).ping()
    except redis.BusyLoadingError:
        return True
    except redis.ConnectionError:
        return False
    raise AssertionError("it had loaded before anybody looked")


def test_a_server_that_is_busy_with_a_script(new_bq, server, tmp_path):
    """BUSY: somebody's script runs on and on. Nothing of ours was done; when it was killed all goes on."""
    one = server("--busy-reply-threshold", "50")
    bq = new_bq(one.url())
    note, ran = log_ids(tmp_path / "ran")
    worker = bq.start("work", "-q", "orders", "--exec", note)
    until(lambda: len(one.client().client_list()) >= 2, 10, "the worker")
    endless = threading.Thread(target=run_for_ever, args=(one,))
    endless.start()
    until(lambda: busy(one), 10, "a busy server")
    tries = bq.run("publish", "-q", "orders", URN, "{}", "--timeout", "500ms", exit=None)
    assert tries.code in (69, 75) and b"BUSY" in tries.err
    one.client().script_kill()
    endless.join(10)
    ids = publish(bq, 20)
    until(lambda: len(ran()) == 20, 20, "work")
    worker.stop()
    assert sorted(ran()) == sorted(ids) and one.client().keys("*") == [], "what was refused was not done"


def run_for_ever(one):
    with pytest.raises(redis.ResponseError):
        one.client(socket_timeout=60).eval("while true do end", 0)


def busy(one):
    try:
        return not one.client().ping()
    except redis.ResponseError as error:
        return "BUSY" in str(error)


def test_a_replica_without_its_master(new_bq, server, tmp_path):
    """MASTERDOWN: a replica that may not answer with old data. The worker waits until it is a master itself."""
    one = server("--replica-serve-stale-data", "no")
    bq = new_bq(one.url(reconnect_max="200ms"))
    publish(bq, 3)
    one.client().replicaof("127.0.0.1", free_port())
    done = bq.run("stats", "-q", "orders", "--timeout", "1s", exit=None, timeout=20)
    assert done.code in (69, 75) and (b"MASTERDOWN" in done.err or b"replica" in done.err)
    note, ran = log_ids(tmp_path / "ran")
    worker = bq.start("work", "-q", "orders", "--exec", note)
    worker.until_err(rb"MASTERDOWN|replica", 20)
    one.client().replicaof("NO", "ONE")
    until(lambda: len(ran()) == 3, 20, "work")
    worker.stop()


def test_a_cluster_is_told(new_bq, server):
    """A cluster's node would refuse scripts over several keys: said at once, with the exit status of a wrong set-up."""
    one = server("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    one.client().execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    until(lambda: one.client().execute_command("CLUSTER INFO")["cluster_state"] == "ok", 20, "the cluster")
    done = new_bq(one.url()).run("work", "-q", "orders", "--print", exit=78, timeout=20)
    assert b"cluster" in done.err


def test_sentinels_with_a_password(new_bq, server, tmp_path):
    """sentinel_password is for the Sentinels, the password of the URL for the server that they name."""
    master = server("--requirepass", "store", "--masterauth", "store")
    port = free_port()
    conf = tmp_path / "sentinel.conf"
    conf.write_text(
        f"port {port}\nbind 127.0.0.1\nrequirepass guard\nsentinel monitor shop 127.0.0.1 {master.port} 1\n"
        "sentinel auth-pass shop store\n"
    )
    server(str(conf), port=port, sentinel=True)
    url = f"redis+sentinel://:store@127.0.0.1:{port}/0?master=shop&reconnect_max=200ms"
    bq = new_bq(f"{url}&sentinel_password=guard")
    assert len(publish(bq, 2)) == 2
    bq.run("work", "-q", "orders", "--print", "--max", 2)
    wrong = new_bq(f"{url}&sentinel_password=wrong-secret").run("stats", "-q", "orders", "--timeout", "2s", exit=77, timeout=20)
    assert b"wrong-secret" not in wrong.err
    new_bq(url).run("stats", "-q", "orders", "--timeout", "2s", exit=77, timeout=20)


# ---- TLS --------------------------------------------------------------------------------------------------------------------------


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture
def certificates(tmp_path):
    """An authority, what it signed for localhost and for a client, and an authority that signed nothing."""
    for name in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", 2,
                "-subj", f"/CN={name}", "-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.pem")  # fmt: skip
    (tmp_path / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
                "-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.csr")  # fmt: skip
        openssl("x509", "-req", "-in", tmp_path / f"{name}.csr", "-CA", tmp_path / "ca.pem", "-CAkey", tmp_path / "ca.key",
                "-CAcreateserial", "-days", 2, "-extfile", tmp_path / "names", "-out", tmp_path / f"{name}.pem")  # fmt: skip
    return tmp_path


@pytest.fixture
def secure(server, certificates):
    def make(*options):
        port = free_port()
        one = server("--tls-port", port, "--tls-cert-file", certificates / "server.pem", "--tls-key-file", certificates / "server.key",
                     "--tls-ca-cert-file", certificates / "ca.pem", *options)  # fmt: skip
        return one, f"rediss://127.0.0.1:{port}/0"

    out = subprocess.run([binary(), "--tls-port", "1", "--port", "0"], capture_output=True, timeout=20).stdout
    if b"Failed finding TLS support" in out:
        pytest.skip("expected: this server is built without TLS")
    return make


def test_tls(new_bq, secure, certificates):
    one, url = secure("--tls-auth-clients", "no")
    ca = certificates / "ca.pem"
    bq = new_bq(f"{url}?tls_ca={ca}")
    publish(bq, 2)
    assert one.client().llen("orders") == 2
    bq.run("work", "-q", "orders", "--print", "--max", 2)
    for wrong in ("", f"?tls_ca={certificates}/other.pem", f"?tls_ca={ca}&tls_server_name=elsewhere.example"):
        done = new_bq(url + wrong).run("publish", "-q", "orders", URN, "{}", "--timeout", "2s", exit=77, timeout=20)
        assert b"certificate" in done.err
    new_bq(f"{url}?tls_verify=no").run("publish", "-q", "orders", URN, "{}")
    assert one.client().llen("orders") == 1


def test_tls_with_a_clients_certificate(new_bq, secure, certificates):
    one, url = secure("--tls-auth-clients", "yes")
    url = f"{url}?tls_ca={certificates}/ca.pem"
    new_bq(url).run("publish", "-q", "orders", URN, "{}", "--timeout", "2s", exit=77, timeout=20)
    publish(new_bq(f"{url}&tls_cert={certificates}/client.pem&tls_key={certificates}/client.key"), 1)
    assert one.client().llen("orders") == 1
