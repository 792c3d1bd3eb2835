"""Power cuts and kills between every two writes: a confirmed message is never lost, a settled one never comes back.

The workload (tests/tools/disk_workload.c) says of each operation when it was submitted and when it was confirmed;
tests/tools/disk_shim.c writes down what reached the disk in between, or kills the process there.

BQ_POWER_MESSAGES (24), BQ_POWER_SEED (1) and BQ_POWER_STRIDE (1: every cut) choose how much is tried.
"""

import os
import random
import signal

import pytest

from support import build, disk, sqlitefile
from support.marks import Marks
from support.workload import Workload

MESSAGES = build.scale("BQ_POWER_MESSAGES", 24)
SEED = build.scale("BQ_POWER_SEED", 1)
STRIDE = build.scale("BQ_POWER_STRIDE", 1)

pytestmark = [pytest.mark.native, pytest.mark.slow]


def _play(ops):
    """(number of operations so far, the disk, the marks) before each operation on the database, and at the end."""
    drive, marks = disk.Disk(ignored=("-shm", "marks")), Marks()
    for number, op in enumerate(ops):
        if op.name != "marks":
            yield number, drive, marks
            drive.play(op)
        elif op.kind == "W":
            marks.read(op.data.decode())
    yield len(ops), drive, marks


@pytest.mark.parametrize("sync", ["full", "normal"])
def test_power_cut_before_every_write(shim, tmp_path, sync):
    """Contract 3 and 7.11: after a power cut at any moment the database opens, is whole, and with sync=full holds what
    was confirmed; with sync=normal it may be an earlier state, but each message is in exactly one."""
    rng = random.Random(SEED)
    ops = Workload(shim, tmp_path, MESSAGES, f"?sync={sync}").traced()
    images, seen = 0, set()
    for number, drive, marks in _play(ops):
        if number % STRIDE and number < len(ops):
            continue
        for how in ["lost", "torn", "torn", "kept"]:
            image = drive.image(how, rng)
            fingerprint = (hash(frozenset(image.items())), str(sorted(marks.confirmed.items())), str(marks.open))
            if fingerprint in seen:
                continue
            seen.add(fingerprint)
            images += 1
            home = tmp_path / f"cut-{number}-{images}"
            home.mkdir()
            disk.write_image(home, image)
            try:
                messages = sqlitefile.read(home / "bq.db")
                marks.check(messages, durable=sync == "full" or how == "kept")
            except Exception as fault:
                raise AssertionError(f"cut before operation {number}, {how}: {fault}; image in {home}") from fault
            for file in home.iterdir():
                file.unlink()
            home.rmdir()
    print(f"sync={sync}: {len(ops)} operations, {images} images")
    assert images > 4 * MESSAGES


def test_the_library_opens_what_a_power_cut_left(shim, tmp_path, new_bq):
    """The same images through the library itself, at a few cuts: what is confirmed can be taken and worked, what was
    leased once its lease has ended."""
    rng = random.Random(SEED)
    ops = Workload(shim, tmp_path, 8, "?retry_after=1s").traced()
    cuts = set(rng.sample(range(len(ops)), 6)) | {len(ops)}
    for number, drive, marks in _play(ops):
        if number not in cuts:
            continue
        home = tmp_path / f"open-{number}"
        home.mkdir()
        disk.write_image(home, drive.image("torn", rng))
        expected = {m.id for m in sqlitefile.read(home / "bq.db") if m.queue == "orders"}
        bq = new_bq(f"sqlite:{home / 'bq.db'}?retry_after=1s")
        printed = bq.run("work", "-q", "orders", "--print", "--drain=all")
        assert expected <= {disk_id for disk_id in _ids(printed)}
        bq.run("publish", "-q", "orders", "urn:x", "{}")


def _ids(done):
    return {body["meta"]["id"] for body in done.json}


def test_killed_before_every_write(shim, tmp_path):
    """SIGKILL between every two writes: as a power cut, with the files as the process left them, -shm included."""
    workload = Workload(shim, tmp_path, 8)
    total = workload.operations()
    kills = 0
    for number in range(1, total + 1, STRIDE):
        home, done = workload.run(f"kill-{number}", kill=number)
        if done.returncode == 0:
            continue  # threads of the library may need an operation more or less from run to run
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        kills += 1
        marks = Marks().read((home / "marks").read_text() if (home / "marks").exists() else "")
        if (home / "bq.db").exists():
            try:
                marks.check(sqlitefile.read(home / "bq.db"))
            except Exception as fault:
                raise AssertionError(f"killed before operation {number}: {fault}; files in {home}") from fault
        else:
            assert not marks.confirmed
    print(f"{total} operations, {kills} kills")
    assert kills >= total // STRIDE - 5


def test_publish_killed_before_every_write(shim, tmp_path, new_bq):
    """What `bq publish` printed before it died is on the queue."""
    lines = "".join(f'{{"urn":"urn:x","data":{{"n":{n}}}}}\n' for n in range(12))
    number, killed = 0, True
    while killed:
        number += 1
        home = tmp_path / f"publish-{number}"
        home.mkdir()
        bq = new_bq(f"sqlite:{home / 'bq.db'}", env=disk.environment(shim, home, kill=number))
        done = bq.run("publish", "-q", "orders", "--lines", input=lines, exit=None)
        killed = done.code != 0
        assert done.code in (0, -signal.SIGKILL), done
        if (home / "bq.db").exists():
            found = [m.id for m in sqlitefile.read(home / "bq.db")]
            assert len(found) == len(set(found))
            assert set(done.out.decode().split()) <= set(found), f"killed before operation {number}: {done}"
        else:
            assert not done.out
    print(f"{number} operations")
    assert number > 20


def test_work_killed_before_every_write(shim, tmp_path, new_bq):
    """A worker that dies at any write of its own loses nothing: what it had is there, or was handled."""
    published = new_bq(f"sqlite:{tmp_path / 'start.db'}")
    ids = published.run(
        "publish", "-q", "orders", "--lines", "urn:x", input="".join(f'{{"n":{n}}}\n' for n in range(6))
    ).out.decode().split()
    # Number 5 fails and is retried, number 4 is rejected: all three ways of settling are cut.
    (tmp_path / "handler.sh").write_text(
        'printf "%s\\n" "$BQ_ID" >>"$HANDLED"\n'
        'case $(cat) in *5*) [ "$BQ_ATTEMPTS" -gt 0 ] || exit 1 ;; *4*) exit 65 ;; esac\n'
    )
    number, killed = 0, True
    while killed:
        number += STRIDE
        home = tmp_path / f"work-{number}"
        home.mkdir()
        for suffix in ["", "-wal"]:
            if (tmp_path / f"start.db{suffix}").exists():
                (home / f"bq.db{suffix}").write_bytes((tmp_path / f"start.db{suffix}").read_bytes())
        handled = home.parent / f"handled-{number}"
        env = {**disk.environment(shim, home, kill=number), "HANDLED": str(handled)}
        bq = new_bq(f"sqlite:{home / 'bq.db'}", env=env)
        done = bq.run("work", "-q", "orders", "--exec", f"sh {tmp_path / 'handler.sh'}", "--drain", exit=None)
        killed = done.code == -signal.SIGKILL
        assert killed or done.code == 1, done  # 1: one was dead-lettered
        messages = sqlitefile.read(home / "bq.db")
        there = [m.id for m in messages]
        assert len(there) == len(set(there)), f"killed before operation {number}"
        ran = set(handled.read_text().split()) if handled.exists() else set()
        for id in ids:
            assert id in ran or id in there, f"killed before operation {number}: {id} was neither handled nor kept"
        if not killed:
            assert [(m.queue, m.id) for m in messages] == [("orders.dlq", ids[4])]
    print(f"{number} operations")
    assert number > 10 or STRIDE > 1
    os.sync()
