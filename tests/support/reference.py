"""A second reading of contract 1 and 4, on tokens: what a rewritten body must consist of.

The peer re-encodes what it writes again, so it cannot tell whether bytes survive. This can: it cuts a valid body into
tokens, drops, replaces and appends those that the operation changes, and nothing else. White space is not judged
here, because the contract leaves it open on which side of a removed member it goes; where nothing is removed,
`respelled` gives the exact bytes.
"""

import json
import re
from dataclasses import dataclass
from typing import List

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null|[{}\[\],:]', re.DOTALL)
_BLANK = " \t\n\v\f\r"
_FORBIDDEN_META = {"max_retries", "attempts", "source", "ts"}


@dataclass
class Member:
    name: str
    key: bytes  # its token
    value: List[bytes]  # its tokens
    start: int  # of the value, in bytes
    end: int


class Body:
    """A body that is one valid JSON object, as tokens."""

    def __init__(self, raw):
        self.raw = raw
        self._spans = [(m.start(), m.end()) for m in _TOKEN.finditer(raw)]
        self.tokens = [raw[a:b] for a, b in self._spans]
        self.members, end = self._object(0)
        assert end == len(self.tokens)
        jobs = [m for m in self.members if m.name == "job"]
        urns = [m for m in self.members if m.name == "urn"]
        self.identity_is_urn = not (jobs and _valid_urn(jobs[-1]))
        #: The contract does not say which of several alias members is renamed: then only the meaning is judged.
        self.plain_identity = not self.identity_is_urn or (len(jobs) <= 1 and len(urns) == 1)

    def _object(self, at):
        """The members of the object whose brace is token `at`, and the token after it."""
        members, at = [], at + 1
        while self.tokens[at] != b"}":
            if self.tokens[at] == b",":
                at += 1
            key = self.tokens[at]
            start = at + 2
            end = self._skip(start)
            members.append(
                Member(
                    json.loads(key.decode("utf-8", "surrogateescape")),
                    key,
                    self.tokens[start:end],
                    self._spans[start][0],
                    self._spans[end - 1][1],
                )
            )
            at = end
        return members, at + 1

    def _skip(self, at):
        depth = 0
        while True:
            token = self.tokens[at]
            at += 1
            if token in (b"{", b"["):
                depth += 1
            elif token in (b"}", b"]"):
                depth -= 1
            if depth == 0:
                return at

    def dropped(self):
        """The pointers of what a rewrite drops with a warning."""
        found = set()
        for member in self.members:
            if member.name == "timestamp":
                found.add("/timestamp")
            elif member.name == "urn" and not self.identity_is_urn:
                found.add("/urn")
            elif member.name == "meta" and member.value[0] == b"{":
                found |= {"/meta/" + m.name for m in Body(b"".join(member.value)).members if m.name in _FORBIDDEN_META}
        return found

    def changes_nothing_else(self):
        """Whether a rewrite of `attempts` only replaces values that are there."""
        return (
            not self.dropped()
            and not self.identity_is_urn
            and any(m.name == "attempts" for m in self.members)
        )

    def respelled(self, attempts):
        """The exact bytes of a retry, where changes_nothing_else()."""
        out, at = [], 0
        for member in self.members:
            if member.name == "attempts":
                out += [self.raw[at : member.start], b"%d" % attempts]
                at = member.end
        return b"".join(out) + self.raw[at:]

    def rewritten(self, attempts, block=None, keep_dead_letter=False):
        """The tokens of the body with `attempts` set; `block`: with this dead_letter (bytes) instead of any other."""
        kept, has_attempts = [], False
        for member in self.members:
            name, key, value = member.name, member.key, member.value
            if name == "timestamp" or (name == "dead_letter" and not keep_dead_letter):
                continue
            if name == "urn":
                if not self.identity_is_urn:
                    continue
                key = b'"job"'
            elif name == "job" and self.identity_is_urn:
                continue
            elif name == "attempts":
                value, has_attempts = [b"%d" % attempts], True
            elif name == "meta" and value[0] == b"{":
                inner = Body(b"".join(value)).members
                value = _joined([m for m in inner if m.name not in _FORBIDDEN_META])
            kept.append(Member(name, key, value, 0, 0))
        if not has_attempts:
            kept.append(Member("attempts", b'"attempts"', [b"%d" % attempts], 0, 0))
        if block is not None:
            kept.append(Member("dead_letter", b'"dead_letter"', tokens_of(block), 0, 0))
        return _joined(kept)


def _valid_urn(member):
    if member.value[0][:1] != b'"':
        return False
    return json.loads(member.value[0].decode("utf-8", "surrogateescape")).strip(_BLANK) != ""


def _joined(members):
    out = [b"{"]
    for index, member in enumerate(members):
        if index:
            out.append(b",")
        out += [member.key, b":", *member.value]
    return out + [b"}"]


def tokens_of(raw):
    return _TOKEN.findall(raw)
