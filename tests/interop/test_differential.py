"""Verdicts, records and rewritten bodies compared with the newest peer on generated and mutated bodies.

Each difference is either a fault, and fails the test, or belongs to one of the classes below: a name, the clause of
the contract that decides it, and a predicate that recognises it. docs/decisions.md has a line for every class. A
class that no longer occurs fails as well, so that the list cannot outlive its reasons.

BQ_DIFF_BODIES (12000) and BQ_DIFF_SEED (1) choose the corpus.
"""

import json
import os
import random
import re
from collections import Counter, defaultdict

import pytest

from support import build, judge, peer, reference
from support.bodies import FORBIDDEN_META, META, Maker, STRINGS

BODIES = build.scale("BQ_DIFF_BODIES", 12000)
SEED = build.scale("BQ_DIFF_SEED", 1)
SHOWN = 12

DECODED = ("ok", "nonconformant")

# ---- the classes of differences ---------------------------------------------------------------------------------------

_LONG_INTEGER = re.compile(rb"(?<![0-9.eE])[0-9]{4301,}(?![0-9.eE])")
_ESCAPED_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?:[^\"\\])+\\u[dD][c-fC-F][0-9a-fA-F]{2}")


def long_integer(case):
    """An integer of more than 4,300 digits, which the peer's interpreter refuses to convert."""
    return _LONG_INTEGER.search(case.body) is not None


def separated_surrogates(case):
    """A high and a low surrogate escape with plain characters between them: the peer's check looks at escapes only."""
    return _ESCAPED_PAIR.search(case.body) is not None and case.ours == case.wrapped()


def spaced_empty(case):
    """`{ }`: the peer rewrites the empty object whole."""
    return re.fullmatch(rb"[ \t\r\n]*\{[ \t\r\n]+\}[ \t\r\n]*", case.body) and re.sub(rb"^\{[ \t\r\n]+", b"{", case.ours) == case.theirs


#: What is compared -> {class: (clause, predicate)}.
CLASSES = {
    "verdict": {"long integer": ("2: no other limit than memory", long_integer)},
    "poison record": {
        "empty object with white space": ("4: inserted before the final brace, so inner white space stays", spaced_empty),
        "long integer": ("2, 4: no other limit than memory, so it is one strict JSON object and spliced", long_integer),
        "separated surrogates": ("4: no unpaired surrogate escape in any string", separated_surrogates),
    },
    "urn": {},
    "retry": {},
    "retry bytes": {},
    "record": {},
    "record bytes": {},
    "redrive": {},
    "redrive bytes": {},
    "tokens": {},
    "exact bytes": {},
    "dropped": {},
}


class Case:
    """One comparison that came out different."""

    def __init__(self, what, maker, body, ours, theirs, block):
        self.what, self.maker, self.body, self.ours, self.theirs, self.block = what, maker, body, ours, theirs, block

    def wrapped(self):
        """The wrap form of the poison record (contract 4) of a UTF-8 body."""
        raw = json.dumps(self.body.decode("utf-8"), ensure_ascii=False)
        block = json.dumps(self.block.as_dict("poison"), ensure_ascii=False, separators=(",", ":"))
        return f'{{"raw":{raw},"dead_letter":{block}}}'.encode("utf-8")

    def __str__(self):
        return f"{self.what} ({self.maker})\n    body   {self.body!r}\n    ours   {self.ours!r}\n    peer's {self.theirs!r}"


class Ledger:
    """Collects differences and sorts them into their classes."""

    def __init__(self):
        self.compared, self.known, self.unknown = Counter(), Counter(), defaultdict(list)

    def compare(self, what, maker, body, ours, theirs, block=None):
        self.compared[what] += 1
        if ours == theirs:
            return
        case = Case(what, maker, body, ours, theirs, block)
        for name, (_clause, predicate) in CLASSES[what].items():
            if predicate(case):
                self.known[what, name] += 1
                return
        self.unknown[what].append(case)

    def report(self):
        lines = ["compared: " + ", ".join(f"{what} {n}" for what, n in sorted(self.compared.items()))]
        lines += [f"known: {what}, {name}: {n}" for (what, name), n in sorted(self.known.items())]
        for what, cases in self.unknown.items():
            lines.append(f"DIFFERENT: {what}: {len(cases)}")
            lines += [str(case) for case in sorted(cases, key=lambda c: len(c.body))[:SHOWN]]
        return "\n".join(lines)

    def check(self, only=None):
        print(self.report())
        assert not self.unknown, self.report()
        for what, classes in CLASSES.items():
            if only is not None and what not in only:
                continue
            for name in classes:
                assert self.known[what, name], f"no body shows the difference {name!r} any more: strike it from the list"


# ---- the corpus, judged once ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judged():
    """(what made it, body, new attempts, block, what the library says) of every body."""
    rng = random.Random(SEED + 1)
    corpus = Maker(SEED).corpus(BODIES)
    attempts = [rng.choice([0, 1, 2, 3, 17, 2**31 - 1]) for _ in corpus]
    blocks = [
        judge.Block(
            reason=rng.choice(["failed", "unknown_urn"]),
            error=rng.choice([None, "", rng.choice(STRINGS), 'Undecodable BabelQueue body: "x"\n\u2028\x7f']),
            exception=rng.choice([None, "ValueError", rng.choice(STRINGS)]),
            failed_at=rng.choice([1749132730000, 0, 2**53 + 1]),
            original_queue=rng.choice(["orders", "", "очередь", 'with "quotes"']),
            attempts=count,
            lang=rng.choice(["c", "python"]),
        )
        for count in attempts
    ]
    answers = judge.judge([body for _, body in corpus], attempts, blocks)
    return [(maker, body, count, block, said) for (maker, body), count, block, said in zip(corpus, attempts, blocks, answers)]


def test_the_corpus_covers_every_verdict(judged):
    """A comparison that never met a verdict proves nothing of it."""
    seen = Counter(peer.verdict(body)[0] for _, body, *_ in judged)
    print(dict(seen))
    assert len(judged) >= 10000 or "BQ_DIFF_BODIES" in os.environ
    for verdict in ["ok", "nonconformant", "poison/utf8", "poison/json", "poison/root", "poison/type", "poison/identity"]:
        assert seen[verdict] >= len(judged) / 200, seen


def test_verdicts_and_identities(judged):
    """Contract 2: the verdict is the peer's poison_cause and accepts; the identity is the peer's."""
    ledger = Ledger()
    for maker, body, _count, _block, said in judged:
        verdict, _cause = peer.verdict(body)
        ledger.compare("verdict", maker, body, said.verdict, verdict)
        if said.verdict in DECODED and verdict in DECODED:
            # An unpaired surrogate escape has no text: the library gives U+FFFD, the peer a lone surrogate.
            urn = peer.identity(body).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            ledger.compare("urn", maker, body, said.urn.decode("utf-8"), urn)
    ledger.check({"verdict", "urn"})


def test_poison_by_binding(judged):
    """Contract 2 and 7: conformant bindings take everything that is not ok, Kafka only what has wrong bytes or types."""
    for _maker, body, _count, _block, said in judged:
        conformant = said.verdict != "ok"
        assert all(said.poison[name] == conformant for name in judge.BINDINGS if name != "kafka"), body
        if said.verdict in DECODED or said.verdict == "poison/identity":
            assert said.poison["kafka"] == _job_has_bad_type(body), body
        elif body.strip(b" \t\r\n") == b"null":
            assert not said.poison["kafka"], body
        else:
            assert said.poison["kafka"], body


def _job_has_bad_type(body):
    """On Kafka a `job` that is neither a string nor null is poison/type (contract 2), every occurrence counted."""
    return any(m.name == "job" and m.value[0][:1] not in (b'"', b"n") for m in reference.Body(body).members)


def test_poison_records(judged):
    """Contract 4: the record of a poison body, byte for byte, of every body that is one and every body that is none."""
    ledger = Ledger()
    for maker, body, _count, block, said in judged:
        assert said.poison_record is not None, body
        ledger.compare("poison record", maker, body, said.poison_record, peer.poison_record(body, block), block)
    ledger.check({"poison record"})


def test_kafka_poison_records(judged):
    """Contract 4: on Kafka an existing dead_letter is replaced, and a non-finite number in data means wrap."""
    replaced = wrapped = 0
    for _maker, body, _count, block, said in judged:
        if said.kafka_record == said.poison_record:
            continue
        if said.kafka_record.startswith(b'{"raw":'):
            # The plain record was spliced, so the difference is the number.
            assert not said.poison_record.startswith(b'{"raw":'), body
            assert _has_nonfinite_data(body), body
            wrapped += 1
        else:
            members = reference.Body(said.kafka_record).members
            assert [m.name for m in members].count("dead_letter") == 1, body
            assert json.loads(b"".join(members[-1].value)) == block.as_dict("poison"), body
            kept = [(m.key, m.value) for m in members[:-1]]
            assert kept == [(m.key, m.value) for m in reference.Body(body).members if m.name != "dead_letter"], body
            replaced += 1
    assert replaced and wrapped


def _has_nonfinite_data(body):
    infinite = json.loads(body, parse_int=float)

    def walk(value):
        if isinstance(value, dict):
            return any(walk(v) for v in value.values())
        if isinstance(value, list):
            return any(walk(v) for v in value)
        return isinstance(value, float) and value in (float("inf"), float("-inf"))

    # A repeated data member, or a repeated name within one, hides what was there before: look at the literals then.
    return walk(infinite.get("data")) or any(
        walk(_number(t)) for m in reference.Body(body).members if m.name == "data" for t in m.value
    )


def _number(token):
    try:
        return float(token)
    except ValueError:
        return None


# ---- bodies that are written again ------------------------------------------------------------------------------------


def _meaning(text):
    """What a reader makes of a body. The peer writes a number that is no finite double as Infinity, and so reads it."""
    return json.loads(text)


def _compare_rewritten(judged, what, ours_of, theirs_of, bytes_comparable):
    """The meaning with the peer's re-encoded body; the bytes where the peer would have written the received body so."""
    ledger = Ledger()
    for maker, body, count, block, said in judged:
        ours = ours_of(said)
        if said.verdict not in DECODED:
            continue
        assert ours is not None, body
        if _LONG_INTEGER.search(body):
            continue
        theirs = theirs_of(body, count, block)
        ledger.compare(what, maker, body, _meaning(ours.decode("utf-8")), _meaning(theirs))
        if bytes_comparable(body):
            ledger.compare(what + " bytes", maker, body, ours, theirs.encode("utf-8", "surrogatepass"))
    ledger.check({what, what + " bytes"})
    assert ledger.compared[what + " bytes"] >= len(judged) / 20


def _canonical_without(body, name):
    return peer.is_canonical(body) and name not in json.loads(body)


def test_retried_bodies(judged):
    """Contract 1 and 3: the body of a retry means what the peer's means, and has its bytes where those are canonical."""
    _compare_rewritten(
        judged, "retry", lambda s: s.retry, lambda b, n, _block: peer.retry(b, n), lambda b: _canonical_without(b, "urn")
    )


def test_records_of_envelopes(judged):
    """Contract 4: the record of an envelope. The peer leaves an existing dead_letter in its place, ours is last."""

    def comparable(body):
        return _canonical_without(body, "urn") and list(json.loads(body))[-1:] != [] and (
            "dead_letter" not in json.loads(body) or list(json.loads(body))[-1] == "dead_letter"
        ) and "attempts" in json.loads(body)

    _compare_rewritten(judged, "record", lambda s: s.record, lambda b, _n, block: peer.record(b, block), comparable)


def test_redriven_bodies(judged):
    """Contract 6: dead_letter removed, attempts 0, everything else as it was."""
    _compare_rewritten(
        judged, "redrive", lambda s: s.redrive, lambda b, _n, _block: peer.redrive(b), lambda b: _canonical_without(b, "urn")
    )


def test_bytes_survive_a_rewrite(judged):
    """Contract 1, byte preservation: the tokens of a rewritten body are those received, except what the operation
    changes; and where nothing is removed, every byte is."""
    ledger = Ledger()
    for maker, body, count, block, said in judged:
        if said.verdict not in DECODED:
            continue
        read = reference.Body(body)
        # Of several aliases one is renamed and the others go, which is a drop too.
        expected = read.dropped() | (set() if read.plain_identity else {"/urn"} & set(said.dropped))
        ledger.compare("dropped", maker, body, set(said.dropped), expected)
        if read.changes_nothing_else():
            ledger.compare("exact bytes", maker, body, said.retry, read.respelled(count))
        if not read.plain_identity:
            continue
        written = json.dumps(block.as_dict(), ensure_ascii=False, separators=(",", ":")).encode("utf-8")
        for name, ours, expected in [
            ("retry", said.retry, read.rewritten(count, keep_dead_letter=True)),
            ("record", said.record, read.rewritten(block.attempts, block=written)),
            ("redrive", said.redrive, read.rewritten(0)),
        ]:
            ledger.compare("tokens", f"{maker}, {name}", body, b" ".join(reference.tokens_of(ours)), b" ".join(expected))
    ledger.check({"tokens", "exact bytes", "dropped"})
    assert ledger.compared["exact bytes"] >= len(judged) / 5


def test_rewritten_bodies_are_still_envelopes(judged):
    """Whatever a rewrite makes is judged as its source was, or better: it never turns a good body into poison."""
    sources, rewritten = [], []
    for _maker, body, _count, _block, said in judged:
        if said.verdict not in DECODED:
            continue
        for made in (said.retry, said.record, said.redrive):
            sources.append((body, said))
            rewritten.append(made)
    blocks = [judge.Block()] * len(rewritten)
    for (body, source), made, said in zip(sources, rewritten, judge.judge(rewritten, [1] * len(rewritten), blocks)):
        assert said.verdict in DECODED, (body, made)
        if source.verdict == "ok":
            assert said.verdict == "ok", (body, made)
        assert (said.urn, said.trace_id, said.id) == (source.urn, source.trace_id, source.id), (body, made)
        assert said.dropped == [], (body, made)


# ---- making envelopes -------------------------------------------------------------------------------------------------


def test_made_envelopes_are_the_peers(judged):
    """Contract 1: the bytes of a first publish are the peer's, for the same members. One difference: a queue has a
    name, so that an empty one is written as the peer writes a queue that was not given."""
    maker, specs, expected = Maker(SEED + 2), [], []
    for index in range(max(1000, BODIES // 10)):
        envelope = maker.envelope()
        meta = {k: v for k, v in envelope["meta"].items() if k not in META} or None
        spaced = maker.one_in(2)
        specs.append(
            {
                "urn": maker.rng.choice(["", " \v", "\t\r\n"]) + envelope["job"] + maker.rng.choice(["", " ", "\f"]),
                "trace_id": maker.rng.choice(["", " "]) + envelope["trace_id"],
                "data": json.dumps(envelope["data"], ensure_ascii=False, indent=1 if spaced else None),
                "queue": envelope["meta"]["queue"],
                "lang": "c",
                "id": envelope["meta"]["id"],
                "created_at": envelope["meta"]["created_at"],
                "meta": json.dumps(meta, ensure_ascii=False, indent=spaced or None) if meta else None,
            }
        )
        expected.append(
            peer.encode(
                specs[-1]["urn"], envelope["data"], envelope["meta"]["queue"] or "default", specs[-1]["trace_id"],
                envelope["meta"]["id"], envelope["meta"]["created_at"], "c", meta,
            )
        )  # fmt: skip
    for spec, made, bytes_of_peer in zip(specs, judge.make(specs), expected):
        assert made.status == "OK", (spec, made)
        assert made.body == bytes_of_peer, spec


def test_refused_envelopes_are_the_peers():
    """Contract 1: blank URNs, and core and forbidden keys in the producer's meta, with their RFC 6901 pointer."""
    from babelqueue.exceptions import BabelQueueError, EnvelopeKeyError

    cases = [({"urn": urn, "data": "{}"}, None) for urn in ["", " ", "\t\n\v\f\r ", None]]
    cases += [({"urn": "u", "data": "{}", "meta": json.dumps({key: 1})}, key) for key in META + FORBIDDEN_META]
    for (spec, key), made in zip(cases, judge.make([spec for spec, _ in cases])):
        with pytest.raises(BabelQueueError) as refused:
            peer.EnvelopeCodec.make(spec["urn"], {}, meta={key: 1} if key else None)
        assert made.status == "INVALID", (spec, made)
        if key:
            assert isinstance(refused.value, EnvelopeKeyError)
            assert f"/meta/{key}" in made.error, made


@pytest.mark.parametrize(
    "data", ["", "[]", "null", "1", '"x"', "{} {}", "{", '{"a":NaN}', '{"a":1e400}', '{"a":01}', "\ufeff{}", b'{"a":"\xff"}']
)
def test_data_that_is_no_object_is_refused(data):
    """Contract 1: `data` must be one JSON object, its numbers finite doubles."""
    made = judge.make([{"urn": "u", "data": data, "queue": "q"}])[0]
    assert made.status in ("DATA", "INVALID"), made
    assert made.error


@pytest.mark.smoke
def test_tokens_of_data_are_kept():
    """Contract 1: numbers and strings of `data` are never reformatted. The peer re-encodes them, so nothing else in
    this file could show it."""
    data = '{ "\\u0061" : [ 1.0 , 1e2,-0, 18446744073709551615 ,1e-400 ] ,"s":"\\/\\u00e9" , "a":1,"a":2}'
    made = judge.make([{"urn": "u", "data": data, "queue": "q", "id": "i", "trace_id": "t", "created_at": 5}])[0]
    assert made.body == (
        b'{"job":"u","trace_id":"t","data":{"\\u0061":[1.0,1e2,-0,18446744073709551615,1e-400],"s":"\\/\\u00e9","a":1,"a":2},'
        b'"meta":{"id":"i","queue":"q","lang":"c","schema_version":1,"created_at":5},"attempts":0}'
    )


@pytest.mark.smoke
def test_fresh_ids_are_uuid4():
    """Contract 1: a blank or absent trace id gets a fresh UUIDv4, as does an absent id."""
    made = judge.make([{"urn": "u", "data": "{}", "queue": "q", "trace_id": trace} for trace in (None, "", " \v")] * 50)
    ids = set()
    for one in made:
        envelope = json.loads(one.body)
        for value in (envelope["trace_id"], envelope["meta"]["id"]):
            assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", value), value
            ids.add(value)
    assert len(ids) == 300
