"""`bq inspect`: the verdict as a line, the other modes, files and lines (contract 1, 2, 4 and 7)."""

import json

import pytest

from support.pipes import Talk

BODY = (
    '{"job":"urn:babel:orders:created","trace_id":"t-1","data":{"n":1.0,"big":18446744073709551615},"meta":{"id":"m-1",'
    '"queue":"orders","lang":"go","schema_version":1,"created_at":1700000000000},"attempts":2}'
)


def err(done):
    return done.err.decode()


@pytest.mark.smoke
def test_a_good_body(new_bq):
    bq = new_bq()
    done = bq.run("inspect", input=BODY)
    assert done.json == [
        {
            "verdict": "ok", "reason": None, "urn": "urn:babel:orders:created", "id": "m-1", "trace_id": "t-1", "queue": "orders",
            "lang": "go", "schema_version": 1, "created_at": 1700000000000, "attempts": 2, "dead_letter": None,
        }
    ]  # fmt: skip
    assert not done.err
    record = BODY[:-1] + ',\n"dead_letter":{"reason":"failed",\n"attempts":3}}'
    assert bq.run("inspect", "-", input=record).json[0]["dead_letter"] == {"reason": "failed", "attempts": 3}


@pytest.mark.parametrize(
    "body, verdict",
    [
        (b"\xff", "poison/utf8"),
        (b"", "poison/json"),
        (b"{", "poison/json"),
        (b"null", "poison/root"),
        (b'{"job":"u","attempts":"1"}', "poison/type"),
        (b'{"data":{}}', "poison/identity"),
        (b'{"job":"u"}', "nonconformant"),
    ],
)
def test_other_verdicts(new_bq, body, verdict):
    """Exit 65, with the reason; members that cannot be read are null."""
    done = new_bq().run("inspect", "-", input=body, exit=65)
    (said,) = done.json
    assert said["verdict"] == verdict and said["reason"]
    assert said["id"] is None and said["attempts"] is None


def test_files(new_bq, tmp_path):
    """Several files: each line names its own; one that cannot be read is an error, and the others are read."""
    bq = new_bq()
    (tmp_path / "a").write_text(BODY)
    (tmp_path / "b").write_text("nonsense")
    assert [(row["file"], row["verdict"]) for row in bq.run("inspect", "a", "b", "-", input=BODY, exit=65).json] == [
        ("a", "ok"), ("b", "poison/json"), ("standard input", "ok"),
    ]  # fmt: skip
    assert "file" not in bq.run("inspect", "a").json[0]
    done = bq.run("inspect", "none", "a", ".", exit=74)
    assert [row["verdict"] for row in done.json] == ["ok"]
    assert "none: No such file" in err(done) and ".: Is a directory" in err(done)


def test_lines(new_bq):
    """A body a line; one of them bad: exit 65. A last line needs no line feed, and a blank one is a body too."""
    bq = new_bq()
    done = bq.run("inspect", "--lines", input=f"{BODY}\n\nxyz\n{BODY}", exit=65)
    assert [row["verdict"] for row in done.json] == ["ok", "poison/json", "poison/json", "ok"]
    assert bq.run("inspect", "-l", "-", input=f"{BODY}\n{BODY}\n").json[1]["verdict"] == "ok"
    assert bq.run("inspect", "--lines", input="").lines == []


def test_lines_are_judged_as_they_come(new_bq):
    with Talk(new_bq(), "inspect", "--lines") as talk:
        for _ in range(3):
            talk.write(BODY + "\n")
            assert json.loads(talk.line())["verdict"] == "ok"
        talk.end_input()
        talk.wait(0)


@pytest.mark.parametrize(
    "binding", ["memory", "sqlite", "redis", "laravel", "bullmq", "rabbitmq", "sqs", "sb", "pulsar", "kafka", "artemis"]
)
def test_bindings(new_bq, binding):
    """Contract 7: poison as that binding sees it, and the native properties."""
    bq = new_bq()
    (said,) = bq.run("inspect", "--binding", binding, input=BODY).json
    assert said["poison"] is False
    for row in said["projection"]:
        assert set(row) == {"place", "name", "type", "value"}
        assert row["place"] in ("header", "native", "annotation")
    values = {row["name"]: (row["type"], row["value"]) for row in said["projection"]}
    expected = {
        "kafka": {"bq-job": ("string", "urn:babel:orders:created"), "bq-attempts": ("string", "2")},
        "rabbitmq": {"type": ("string", "urn:babel:orders:created"), "x-attempts": ("int", 2), "x-schema-version": ("int", 1)},
        "sqs": {"bq-created-at": ("number", "1700000000000")},
        "sb": {"bq-created-at": ("long", 1700000000000)},
        "artemis": {"bq_source_lang": ("string", "go")},
    }.get(binding, {})
    for name, value in expected.items():
        assert values[name] == value, (name, values)
    nonconformant = bq.run("inspect", "--binding", binding, input='{"job":"u"}', exit=65).json[0]
    assert nonconformant["poison"] is (binding not in ("kafka",))


def test_rewrites_keep_every_byte(new_bq):
    bq = new_bq()
    odd = BODY.replace('"attempts":2', '"x":1e400, "attempts" : 2')
    assert bq.run("inspect", "--rewrite", "attempts=7", input=odd).out.decode() == odd.replace(": 2", ": 7") + "\n"
    assert bq.run("inspect", "--redrive", input=odd).out.decode() == odd.replace(": 2", ": 0") + "\n"
    assert bq.run("inspect", "--redrive", "--lines", input=f"{BODY}\n{odd}\n").lines[0].decode() == BODY.replace(':2}', ":0}")


def test_dropped_members_are_told(new_bq):
    bq = new_bq()
    odd = BODY.replace('"attempts":2', '"timestamp":1,"urn":"x","attempts":2').replace('"lang"', '"ts":5,"lang"')
    done = bq.run("inspect", "--rewrite", "attempts=3", input=odd)
    assert done.out.decode() == BODY.replace('"attempts":2', '"attempts":3') + "\n"
    for pointer in ("/timestamp", "/urn", "/meta/ts"):
        assert f"dropped {pointer}" in err(done)
    assert "dropped" not in err(bq.run("inspect", "--rewrite", "attempts=3", "--quiet", input=odd))


def test_records(new_bq):
    """--record: the dead-letter record with what the options say (contract 4)."""
    bq = new_bq()
    (record,) = bq.run(
        "inspect", "--record", "failed", "--error", "no\nmoney", "--exception", "Declined", "--failed-at", 5, "--lang", "php",
        "-q", "elsewhere", input=BODY,
    ).json  # fmt: skip
    assert record["dead_letter"] == {
        "reason": "failed", "error": "no\nmoney", "exception": "Declined", "failed_at": 5, "original_queue": "orders",
        "attempts": 3, "lang": "php",
    }  # fmt: skip
    assert record["attempts"] == 3
    (record,) = bq.run("inspect", "--record", "poison", "-q", "orders", input='{"a":1}', exit=65).json
    block = record.pop("dead_letter")
    assert record == {"a": 1}
    assert (block["reason"], block["original_queue"], block["exception"]) == ("poison", "orders", "BabelQueueError")
    assert block["error"].startswith("Undecodable BabelQueue body: ") and block["failed_at"] > 1_700_000_000_000
    (record,) = bq.run("inspect", "--record", "poison", input=b"\xff", exit=65).json
    assert (record["raw"], record["raw_encoding"]) == ("/w==", "base64")


def test_what_cannot_be_rewritten(new_bq):
    """Told with the line, nothing printed for it, exit 65."""
    bq = new_bq()
    for mode in (["--rewrite", "attempts=1"], ["--redrive"], ["--record", "failed"]):
        done = bq.run("inspect", "--lines", *mode, input=f"xyz\n{BODY}\n", exit=65)
        assert len(done.lines) == 1 and "standard input, line 1: " in err(done)
    done = bq.run("inspect", "--record", "poison", input=BODY, exit=None)
    assert not done.out and "not poison" in err(done)


def test_inspect_needs_no_broker(new_bq):
    assert new_bq("nonsense://").run("inspect", input=BODY).json[0]["verdict"] == "ok"
