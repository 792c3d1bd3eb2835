"""The newest published peer as an oracle: the package babelqueue of the test environment."""

import json
import logging
from importlib import metadata

from babelqueue import EnvelopeCodec, dead_letter
from babelqueue._poison_record import build_poison_record

VERSION = metadata.version("babelqueue")

# The codec warns of every dropped key: of thousands of mutated bodies nobody wants to read that.
logging.getLogger("babelqueue").setLevel(logging.CRITICAL)

#: How the peer's causes begin, and the verdict (contract 2) each of them is.
_CAUSES = [
    ("the body is not valid UTF-8", "poison/utf8"),
    ("invalid JSON: ", "poison/json"),
    ("the core decoder cannot parse the body", "poison/json"),
    ("the JSON root is not an object", "poison/root"),
    ("member ", "poison/type"),
    ("the body carries no valid 'job' or 'urn'", "poison/identity"),
]


def text_of(body):
    """A body as the peer's transports carry it."""
    return body.decode("utf-8", "surrogateescape")


def verdict(body):
    """(verdict, cause): the peer's poison_cause and accepts, in the contract's words."""
    text = text_of(body)
    cause = EnvelopeCodec.poison_cause(text)
    if cause is None:
        accepted = EnvelopeCodec.accepts(EnvelopeCodec.decode_lenient(text))
        return ("ok" if accepted else "nonconformant"), None
    for beginning, name in _CAUSES:
        if cause.startswith(beginning):
            return name, cause
    raise AssertionError(f"the peer gives a cause this test does not know: {cause}")


def identity(body):
    return EnvelopeCodec.urn(EnvelopeCodec.decode_lenient(text_of(body)))


def poison_record(body, block):
    return build_poison_record(text_of(body), block.as_dict("poison")).encode("utf-8", "surrogatepass")


def retry(body, attempts):
    """The body the peer publishes again after a failure, as text."""
    envelope = EnvelopeCodec.decode_lenient(text_of(body))
    envelope["attempts"] = attempts
    return EnvelopeCodec.encode(envelope)


def record(body, block):
    """The peer's record of an envelope, as text."""
    envelope = EnvelopeCodec.decode_lenient(text_of(body))
    envelope["attempts"] = block.attempts
    annotated = dead_letter.annotate(
        envelope,
        block.reason,
        block.original_queue,
        block.attempts,
        error=block.error,
        exception=block.exception,
        lang=block.lang,
    )
    annotated["dead_letter"]["failed_at"] = block.failed_at
    return EnvelopeCodec.encode(annotated)


def redrive(body):
    """The body the peer's redrive writes back, as text."""
    envelope = EnvelopeCodec.decode_lenient(text_of(body))
    envelope.pop("dead_letter", None)
    envelope["attempts"] = 0
    return EnvelopeCodec.encode(envelope)


def is_canonical(body):
    """Whether the peer would write these very bytes: only then can its re-encoded bodies be compared as bytes."""
    try:
        text = body.decode("utf-8")
        return json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":")) == text
    except ValueError:
        return False


def encode(urn, data, queue, trace_id, message_id, created_at, lang, meta=None):
    """The bytes of a first publish, with the members that are otherwise drawn or measured given."""
    envelope = EnvelopeCodec.make(urn, data, queue=queue, trace_id=trace_id, meta=meta)
    envelope["meta"]["id"] = message_id
    envelope["meta"]["created_at"] = created_at
    envelope["meta"]["lang"] = lang
    return EnvelopeCodec.encode(envelope).encode("utf-8")
