"""Bodies for the comparison with the peer: valid envelopes, and what becomes of them under token and byte mutations.

Everything is drawn from one seeded generator, so a seed names a corpus. A body comes with the name of what made it,
for the report. Nesting stays far below the peer's recursion limit (the depth rules have tests of their own).
"""

import json
import random
import uuid

from babelqueue import EnvelopeCodec

# ---- trees that keep what dicts lose: order, repeated members, the spelling of literals ------------------------------


class Raw(str):
    """A literal written as it is."""


class Obj(list):
    """(name, value) pairs; a name that is Raw is a key token, quotes included."""


class Arr(list):
    pass


def tree_of(value):
    if isinstance(value, dict):
        return Obj((k, tree_of(v)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return Arr(tree_of(v) for v in value)
    return Raw(json.dumps(value, ensure_ascii=False))


def write(tree, gap=lambda: ""):
    """The tree as text; `gap()` gives the white space around each token."""
    if isinstance(tree, Raw):
        return gap() + tree + gap()
    if isinstance(tree, Arr):
        return gap() + "[" + (",".join(write(v, gap) for v in tree) or gap()) + "]" + gap()
    members = (
        gap() + (name if isinstance(name, Raw) else json.dumps(name, ensure_ascii=False)) + gap() + ":" + write(v, gap)
        for name, v in tree
    )
    return gap() + "{" + (",".join(members) or gap()) + "}" + gap()


# ---- the vocabulary ---------------------------------------------------------------------------------------------------

STRINGS = [
    "", " ", "\t\n\v\f\r ", "\u00a0", "\u2003", "a", "urn:babel:orders:created", "Café — naïve ☕", "日本語", "Привет",
    "\U0001f600\U0001f9d1\u200d\U0001f4bb", "quote\" back\\slash /slash", "\b\f\n\r\t\x00\x1f\x7f", "\u2028\u2029",
    "\ufeff", "\ufffe\uffff\ufffd", "null", "true", "1", "0", "-1", "x" * 300, "é" * 90, "{}", "[1]", "\U0010ffff",
    "name with spaces", "a\\u0041", "\\ud800", "dead_letter", "job",
]  # fmt: skip

STRING_TOKENS = [
    r'"\u0000"', r'"\u000b"', r'"\u0020\u0009"', r'"\b"', r'"\u00a0"', r'"\/"', r'"\ud83d\ude00"', r'"\uD83D\uDE00x"',
    r'"\ud800"', r'"\udc00"', r'"\ud800x"', r'"x\udfff"', r'"\udc00\ud800"', r'"\ud800\ud800\udc00"', r'"\ud800\n"',
    r'"\ud800x\udc00"', r'"\ud800\u0041\udc00"', r'"\\ud800"', r'"\\\ud800"', r'"\u0075rn"', r'"\uFFFF"', r'"\ud83d"',
    r'"\uDBFF\uDFFF"', r'"\ud83d\ude00\ud83d"', r'"\u005c\u0022"', r'"\udcff"', r'"\udc80"',
]  # fmt: skip

NUMBERS = [
    "0", "-0", "1", "2", "-1", "01", "1.0", "1.5", "-0.0", "1e2", "1E+2", "1e-2", "1e400", "-1e400", "1e-400", "1e308",
    "1.8e308", "1.7976931348623157e308", "1.7976931348623158e308", "1.7976931348623159e308", "179769313486231580793e289",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "2147483647",
    "2147483648", "4294967296", "9007199254740993", "18446744073709551615", "18446744073709551616",
    "1491926160718000000", "0.1", "3.141592653589793238462643383279", "123456789012345678901234567890", "1" + "0" * 308,
    "1" + "0" * 309, "1" * 309, "17976931348623157" + "0" * 292, "179769313486231580" + "0" * 291,
    str(2**1024 - 2**970), str(2**1024 - 2**970 - 1), str(2**1024 - 2**970) + ".0", str(2**1024 - 2**970 - 1) + ".9999",
    str(2**1024 - 2**970)[0] + "." + str(2**1024 - 2**970)[1:] + "e308", str(2**1024 - 2**971), str(2**1024),
    "0e999999999999999999999", "1e99999999999999999999", "1e-99999999999999999999", "0." + "0" * 400 + "1e400",
    "0.000001e313", "1" * 200 + "e109", "0" + "." + "9" * 500, "1e0400", "-1e+0308", "2e308",
]  # fmt: skip

#: No JSON at all.
BAD_TOKENS = [
    "NaN", "Infinity", "-Infinity", "01", "-", "+1", ".5", "5.", "1e", "1e+", "0x10", "1_000", "tru", "nul", "True",
    "None", "undefined", "'x'", '"', '"\x01"', '"\n"', r'"\x"', r'"\u12"', r'"\u123g"', r'"\u 123"', r'"\u+123"', "",
    "[", "{", "]", "[1,]", '{"a":1,}', "{,}", "[,]", '{"a"}', "{1:2}", '{"a":}', "/*c*/1", "//c\n1", "1 2", "--1", "-01",
    "1.e5", "١", "\ufeff1", '"\x7f', "1e5.5", "00", "-.5", '"\\"', "\x00", '{"a":1 "b":2}', "[1 2]",
]  # fmt: skip

TOP = ["job", "trace_id", "data", "meta", "attempts"]
META = ["id", "queue", "lang", "schema_version", "created_at"]
DEAD = ["reason", "error", "exception", "failed_at", "original_queue", "attempts", "lang"]
FORBIDDEN_META = ["max_retries", "attempts", "source", "ts"]


class Maker:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.names = list(_MAKERS)
        self.weights = [_MAKERS[name][1] for name in self.names]

    def corpus(self, count):
        """`count` bodies as (what made it, bytes)."""
        made = list(_fixed())[:count]
        while len(made) < count:
            name = self.rng.choices(self.names, self.weights)[0]
            made.append((name, _MAKERS[name][0](self)))
        return made

    # -- parts

    def one_in(self, n):
        return self.rng.randrange(n) == 0

    def string(self):
        if self.one_in(3):
            return "".join(self.rng.choice(STRINGS) for _ in range(2))
        return self.rng.choice(STRINGS)

    def string_token(self):
        if self.one_in(2):
            return Raw(self.rng.choice(STRING_TOKENS))
        return Raw(json.dumps(self.string(), ensure_ascii=self.one_in(2)))

    def scalar(self):
        return self.rng.choice(
            [self.string_token, lambda: Raw(self.rng.choice(NUMBERS[:-8])), lambda: Raw(self.rng.choice(["true", "false", "null"]))]
        )()

    def value(self, depth=3):
        kind = self.rng.randrange(6 if depth else 4)
        if kind == 4:
            return Arr(self.value(depth - 1) for _ in range(self.rng.randrange(4)))
        if kind == 5:
            return self.object(depth - 1)
        return self.scalar()

    def object(self, depth=2):
        return Obj((self.name(), self.value(depth)) for _ in range(self.rng.randrange(5)))

    def name(self):
        """A member name; sometimes one that means something elsewhere, sometimes with escapes."""
        name = self.rng.choice(["a", "b", "items", "id", "job", "dead_letter", "Job", "META", self.string()])
        return self.respelled(name) if self.one_in(4) else name

    def respelled(self, name):
        """The same name with some of its characters as escapes."""
        out = []
        for char in name:
            if char < "\U00010000" and self.one_in(3):
                spelling = f"\\u{ord(char):04x}"
                out.append(spelling.upper().replace("\\U", "\\u") if self.one_in(2) else spelling)
            else:
                out.append(json.dumps(char, ensure_ascii=False)[1:-1])
        return Raw('"' + "".join(out) + '"')

    def data(self):
        """A plain Python object, as a producer has it."""

        def plain(depth):
            kind = self.rng.randrange(8 if depth else 6)
            if kind == 6:
                return [plain(depth - 1) for _ in range(self.rng.randrange(5))]
            if kind == 7:
                return {self.string(): plain(depth - 1) for _ in range(self.rng.randrange(5))}
            return self.rng.choice(
                [
                    self.string(),
                    self.rng.randrange(-(2**63), 2**63),
                    self.rng.random() * 10 ** self.rng.randrange(-300, 300),
                    True,
                    None,
                    self.rng.randrange(100),
                ]
            )

        return {self.string(): plain(4) for _ in range(self.rng.randrange(6))}

    def envelope(self):
        """A valid envelope, as the peer makes it, with drawn ids so that a seed names the bytes."""
        meta = {self.string() or "x": self.data()} if self.one_in(6) else None
        if meta and set(meta) & set(META + FORBIDDEN_META):
            meta = None
        envelope = EnvelopeCodec.make(
            self.rng.choice(["urn:babel:orders:created", "urn:babel:Ünïcode:x", "  urn:trimmed \v", "x"]),
            self.data(),
            queue=self.rng.choice(["orders", "default", "with space", "очередь", ""]),
            trace_id=str(uuid.UUID(int=self.rng.getrandbits(128))),
            meta=meta,
        )
        envelope["meta"]["id"] = str(uuid.UUID(int=self.rng.getrandbits(128)))
        envelope["meta"]["created_at"] = 1700000000000 + self.rng.randrange(10**11)
        envelope["attempts"] = self.rng.choice([0, 0, 0, 1, 2, 3, 100])
        if self.one_in(6):
            envelope.setdefault(self.rng.choice(["extra", "Job", "x-y", self.string() or "z"]), self.data())
        if self.one_in(8):
            envelope["dead_letter"] = {
                "reason": self.rng.choice(["failed", "unknown_urn", "poison"]),
                "error": self.rng.choice([None, self.string()]),
                "exception": self.rng.choice([None, "ValueError"]),
                "failed_at": 1749132730000,
                "original_queue": self.rng.choice(["orders", "", "other"]),
                "attempts": 3,
                "lang": "python",
            }
        return envelope

    def tree(self):
        return tree_of(self.envelope())

    def bytes_of(self, tree):
        style = self.rng.randrange(4)
        if style == 0:
            return write(tree, self.gap).encode("utf-8", "surrogatepass")
        return write(tree).encode("utf-8", "surrogatepass")

    def gap(self):
        return self.rng.choice(["", "", " ", "\n", "\t", "\r\n", "  "])

    def section(self, tree):
        """(members of the envelope, of meta or of dead_letter; the names that are known there)."""
        kind = self.rng.randrange(5)
        for name, value in tree:
            if name == "meta" and kind in (0, 1) and isinstance(value, Obj):
                return value, META
            if name == "dead_letter" and kind == 2 and isinstance(value, Obj):
                return value, DEAD
        return tree, TOP + ["urn", "dead_letter"]


# ---- makers: each gives the bytes of one body -------------------------------------------------------------------------

_MAKERS = {}


def maker(weight):
    def register(function):
        _MAKERS[function.__name__] = (function, weight)
        return function

    return register


@maker(14)
def encoded(m):
    return EnvelopeCodec.encode(m.envelope()).encode("utf-8")


@maker(4)
def pretty(m):
    return json.dumps(m.envelope(), indent=m.rng.choice([1, 2, "\t"]), ensure_ascii=m.one_in(2)).encode("utf-8")


@maker(4)
def spaced(m):
    return write(m.tree(), m.gap).encode("utf-8")


@maker(5)
def escaped_names(m):
    tree = m.tree()
    for part in [tree] + [v for n, v in tree if n in ("meta", "dead_letter") and isinstance(v, Obj)]:
        for i, (name, value) in enumerate(part):
            if m.one_in(2) and not isinstance(name, Raw):
                part[i] = (m.respelled(name), value)
    return m.bytes_of(tree)


@maker(7)
def dropped_members(m):
    tree = m.tree()
    for _ in range(m.rng.randrange(1, 3)):
        part, _names = m.section(tree)
        if part:
            part.pop(m.rng.randrange(len(part)))
    return m.bytes_of(tree)


@maker(14)
def swapped_types(m):
    tree = m.tree()
    for _ in range(m.rng.choice([1, 1, 1, 2])):
        part, names = m.section(tree)
        at = [i for i, (n, _v) in enumerate(part) if n in names]
        if at:
            i = m.rng.choice(at)
            part[i] = (part[i][0], m.value(2))
    return m.bytes_of(tree)


@maker(10)
def repeated_members(m):
    tree = m.tree()
    for _ in range(m.rng.randrange(1, 4)):
        part, names = m.section(tree)
        same = [v for n, v in part if n in names]
        value = m.rng.choice(same) if same and m.one_in(2) else m.value(2)
        name = m.rng.choice(names)
        part.insert(m.rng.randrange(len(part) + 1), (m.respelled(name) if m.one_in(4) else name, value))
    return m.bytes_of(tree)


@maker(10)
def identities(m):
    """job and urn in every combination and order."""
    tree = Obj(p for p in m.tree() if p[0] != "job")
    pool = [
        lambda: Raw('"urn:babel:orders:created"'), lambda: Raw('"other"'), lambda: Raw('""'), lambda: Raw('" \\u000b"'),
        lambda: Raw("null"), lambda: Raw("5"), lambda: Raw("false"), lambda: Arr(), lambda: Obj(), m.string_token,
    ]  # fmt: skip
    for _ in range(m.rng.randrange(0, 5)):
        name = m.rng.choice(["job", "urn"])
        key = m.respelled(name) if m.one_in(4) else name
        tree.insert(m.rng.randrange(len(tree) + 1), (key, m.rng.choice(pool)()))
    return m.bytes_of(tree)


@maker(5)
def reordered(m):
    tree = m.tree()
    m.rng.shuffle(tree)
    for name, value in tree:
        if name == "meta" and isinstance(value, Obj):
            m.rng.shuffle(value)
    return m.bytes_of(tree)


@maker(7)
def forbidden_keys(m):
    tree = m.tree()
    for _ in range(m.rng.randrange(1, 4)):
        part = next((v for n, v in tree if n == "meta" and isinstance(v, Obj)), tree)
        if m.one_in(3):
            part, name = tree, "timestamp"
        else:
            name = m.rng.choice(FORBIDDEN_META + ["timestamp", "Ts"])
        part.insert(m.rng.randrange(len(part) + 1), (m.respelled(name) if m.one_in(4) else name, m.value(1)))
    return m.bytes_of(tree)


@maker(6)
def dead_letters(m):
    tree = Obj(p for p in m.tree() if p[0] != "dead_letter")
    for _ in range(m.rng.choice([1, 1, 2])):
        block = m.rng.choice(
            [m.value, lambda: Raw("null"), lambda: Obj((n, m.value(1)) for n in DEAD if m.one_in(2)), lambda: Obj()]
        )()
        tree.insert(m.rng.randrange(len(tree) + 1), (m.respelled("dead_letter") if m.one_in(3) else "dead_letter", block))
    return m.bytes_of(tree)


@maker(6)
def unknown_members(m):
    tree = m.tree()
    for _ in range(m.rng.randrange(1, 4)):
        part, _names = m.section(tree)
        part.insert(m.rng.randrange(len(part) + 1), (m.name(), m.value(3)))
    return m.bytes_of(tree)


@maker(8)
def numbers(m):
    """Every number literal inside data, or elsewhere."""
    tree = m.tree()
    literal = Raw(m.rng.choice(NUMBERS))
    holder = m.rng.choice([lambda: Obj([("n", literal)]), lambda: Obj([("a", Arr([Raw("1"), literal]))])])()
    name = m.rng.choice(["data", "data", "extra", "attempts", "meta"])
    if name == "attempts":
        holder = literal
    if name == "meta":
        meta = next(v for n, v in tree if n == "meta")
        at = m.rng.choice(["schema_version", "created_at", "other"])
        tree = Obj((n, Obj([(k, v) for k, v in meta if k != at] + [(at, literal)]) if n == "meta" else v) for n, v in tree)
    else:
        tree = Obj([p for p in tree if p[0] != name] + [(name, holder)])
    return m.bytes_of(tree)


@maker(6)
def surrogates(m):
    tree = m.tree()
    token = Raw(m.rng.choice([t for t in STRING_TOKENS if "\\ud" in t.lower()]))
    where = m.rng.choice(["data", "job", "trace_id", "queue", "key"])
    if where == "key":
        tree.append((token, Raw("1")))
    elif where == "queue":
        tree = Obj((n, Obj((k, token if k == "queue" else x) for k, x in v) if n == "meta" else v) for n, v in tree)
    elif where == "data":
        tree = Obj((n, Obj([("s", token)]) if n == "data" else v) for n, v in tree)
    else:
        tree = Obj((n, token if n == where else v) for n, v in tree)
    return m.bytes_of(tree)


@maker(3)
def nested(m):
    depth = m.rng.randrange(10, 250)
    inner = m.rng.choice(['{"a":' * depth + "1" + "}" * depth, "[" * depth + "]" * depth, '[{"x":' * depth + "0" + "}]" * depth])
    tree = Obj(list(m.tree()))
    name = m.rng.choice(["data", "extra", "meta", "attempts"])
    return m.bytes_of(Obj([p for p in tree if p[0] != name] + [(name, Raw(inner))]))


@maker(8)
def bad_tokens(m):
    tree = m.tree()
    part, _names = m.section(tree)
    if part:
        i = m.rng.randrange(len(part))
        part[i] = (part[i][0], Raw(m.rng.choice(BAD_TOKENS)))
    return m.bytes_of(tree)


@maker(4)
def roots(m):
    """Other values than an object, and what stands around one."""
    text = m.rng.choice(
        ["null", "true", "1", '"x"', "[]", "", " ", "{}", "[{}]", " null ", "nul", "1 1", "{} {}", "[" * 30, '{"a":1}',
         json.dumps(EnvelopeCodec.encode(m.envelope())), "[" + EnvelopeCodec.encode(m.envelope()) + "]"]
    )  # fmt: skip
    return m.rng.choice([text, text, text + "\n", "\ufeff" + text, text + "\x00"]).encode("utf-8")


@maker(6)
def surrounded(m):
    body = EnvelopeCodec.encode(m.envelope()).encode("utf-8")
    around = [b" ", b"\n", b"\r\n\t ", b"\x00", b"\v", b"\f", b"\xa0", b"\xc2\xa0", b"\xef\xbb\xbf", b"x", b",", b"}", b"]", b"{}",
              b"null", b"\xff", b"\xed\xa0\x80", b"//", b"\xe2\x80\xa8"]  # fmt: skip
    before = m.rng.choice(around) if m.one_in(2) else b""
    after = m.rng.choice(around) if not before or m.one_in(2) else b""
    return before + body + after


@maker(5)
def truncated(m):
    body = m.bytes_of(m.tree())
    return body[: m.rng.randrange(len(body))]


@maker(8)
def flipped_bytes(m):
    body = bytearray(m.bytes_of(m.tree()))
    for _ in range(m.rng.choice([1, 1, 2, 4])):
        at = m.rng.randrange(len(body))
        what = m.rng.randrange(4)
        if what == 0:
            body[at] = m.rng.randrange(256)
        elif what == 1:
            body[at:at] = bytes([m.rng.randrange(256)])
        elif what == 2:
            del body[at : at + m.rng.choice([1, 1, 3])]
        else:
            body[at] = m.rng.choice(b'"\\{}[]:,0123456789.eE+- \t\n\rtfnu/')
    return bytes(body)


@maker(6)
def bad_utf8(m):
    sequence = m.rng.choice(
        [b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc2", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xe0\xa0", b"\xed\xa0\x80",
         b"\xed\xbf\xbf", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80",
         b"\xf8\x88\x80\x80\x80", b"\xfe", b"\xff", b"\xc3\x28", b"\xe2\x28\xa1", b"\xed\x9f\xbf", b"\xee\x80\x80",
         b"\xf4\x8f\xbf\xbf", b"\xc2\x80", b"\xdf\xbf", b"\xef\xbf\xbf"]
    )  # fmt: skip
    body = m.bytes_of(m.tree())
    if m.one_in(2):
        at = m.rng.randrange(len(body) + 1)
    else:
        quotes = [i for i, b in enumerate(body) if b == 0x22]
        at = m.rng.choice(quotes) + 1
    return body[:at] + sequence + body[at:]


@maker(1)
def spliceable(m):
    """Objects that are no envelopes: what the poison record has to keep byte for byte."""
    tree = m.object(3)
    if m.one_in(3):
        tree.append((m.rng.choice(["dead_letter", m.respelled("dead_letter"), "Dead_letter"]), m.value(1)))
    return m.rng.choice(["", " ", "\r\n"]).encode() + m.bytes_of(tree) + m.rng.choice(["", "\t", " \n"]).encode()


def _fixed():
    """Bodies that must be in every corpus."""
    ok = {
        "job": "u", "trace_id": "t", "data": {}, "meta": {"id": "i", "queue": "q", "lang": "c", "schema_version": 1,
        "created_at": 1}, "attempts": 0,
    }  # fmt: skip
    text = EnvelopeCodec.encode(ok)
    fixed = [
        b"", b" ", b"{}", b" { } ", b"null", b"[]", b"\xef\xbb\xbf{}", b'{"dead_letter":null}', b'{"dead\\u005fletter":1}',
        b'{"job":"a","job":""}', b'{"job":"a","job":5}', b'{"urn":"u","job":"a","job":5}', b'{"job":"a","job":5,"urn":"u"}',
        b'{"urn":"a","urn":5}', b'{"urn":"a","urn":"b"}', b'{"job":"","urn":"u","job":"\\u000b"}', b'{"job":null,"urn":" "}',
        b'{"job":"u","meta":{"schema_version":1},"meta":null}', b'{"job":"u","meta":5,"meta":{"schema_version":1}}',
        b'{"job":"u","x":"\\ud800x\\udc00"}', b'{"job":"u","x":' + b"9" * 4300 + b"}", b'{"job":"u","x":' + b"9" * 4301 + b"}",
        b'{"job":"u","x":' + b"9" * 5000 + b"}", text.encode(), text.replace('"attempts":0', '"attempts":0 ').encode(),
        text.replace('"data":{}', '"data":{"n":' + "9" * 4301 + "}").encode(),
        (text[:-1] + ',"extra":' + "9" * 4301 + "}").encode(), (text[:-1] + ',"x":1e400}').encode(),
        text.replace('"data":{}', '"data":{"x":"\\ud800-\\udc00"}').encode(),
    ]  # fmt: skip
    for body in fixed:
        yield "fixed", body
