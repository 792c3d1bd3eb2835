"""bq's command line: help, mistakes and their exit statuses, where the broker comes from."""

import json
import re
import subprocess

import pytest

from support import build
from support.cli import environment

VERBS = ["publish", "work", "inspect", "peek", "queues", "stats", "redrive", "purge", "help", "version"]


def err(done):
    return done.err.decode()


# ---- help -----------------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_help_of_every_verb(new_bq):
    """`bq help`, `bq help VERB` and `bq VERB --help` say the same on stdout, and exit 0."""
    bq = new_bq()
    overview = bq.run("help").out.decode()
    assert bq.run("--help").out.decode() == overview == bq.run("-h").out.decode()
    for verb in VERBS:
        assert re.search(rf"^  {verb} +\w", overview, re.M), verb
        page = bq.run(verb, "--help")
        assert page.out == bq.run("help", verb).out
        assert page.out.decode().startswith(f"Usage: bq {verb}") and not page.err
        assert max(map(len, page.out.decode().splitlines())) <= 120
    for status in ("0", "1", "64", "65", "69", "75", "77", "78"):
        assert re.search(rf"^  {status} ", overview, re.M), status


def test_help_wins_over_what_follows(new_bq):
    bq = new_bq()
    assert b"Usage: bq publish" in bq.run("publish", "-h", "--nonsense").out
    assert b"Usage: bq publish" in bq.run("-h", "publish").out or b"Usage: bq COMMAND" in bq.run("-h", "publish").out


def test_version(new_bq):
    bq = new_bq()
    said = bq.run("version", "--json").json[0]
    assert re.fullmatch(r"\d+\.\d+\.\d+", said["version"]) and said["library"] == said["version"]
    assert {"memory", "sqlite"} <= set(said["transports"])
    assert re.match(r"SQLite \d", said["libraries"]["sqlite"])
    assert "kafka" in said["not_built"] + said["transports"]
    assert bq.run("-V").out == bq.run("version").out
    assert said["version"] in bq.run("version").out.decode()
    assert bq.run("--version").out == bq.run("version").out


def without_driver(bq, scheme):
    """What is said of a scheme that has no driver here. A build option is named only where there is one."""
    version = bq.run("version", "--json").json[0]
    if scheme == "sqlite":
        return '"sqlite" is not built into this library (build it with BQ_TRANSPORT_SQLITE)'
    return f'"{scheme}" is not in this version ({version["version"]}): built in are {", ".join(version["transports"])}\n'


def test_help_urls(new_bq):
    """Every option with its default; one scheme alone; what is not built in is told apart from what does not exist."""
    bq = new_bq()
    page = bq.run("help", "urls").out.decode()
    for word in ("sqlite:PATH", "busy_timeout", "(10s)", "memory:NAME", "retry_after", "Not built in:"):
        assert word in page, word
    alone = bq.run("help", "urls", "sqlite").out.decode()
    assert "sqlite:PATH" in alone and "memory:NAME" not in alone
    rows = {row["transport"]: row for row in bq.run("help", "urls", "--json").json}
    options = {option["name"]: option for option in rows["sqlite"]["options"]}
    assert options["sync"]["default"] == "full" and options["sync"]["type"] == "full|normal"
    assert bq.run("help", "urls", "sqlit", exit=64).err.decode().count("did you mean 'sqlite'") == 1
    for missing in bq.run("version", "--json").json[0]["not_built"]:
        assert without_driver(bq, missing) in err(bq.run("help", "urls", missing, exit=78))


def test_help_of_nothing(new_bq):
    bq = new_bq()
    assert err(bq.run("help", "publsh", exit=64)) == "bq: no help on 'publsh': did you mean 'publish'?\nhint: try bq help\n"
    assert err(bq.run("help", "xyzzy", exit=64)) == "bq: no help on 'xyzzy'\nhint: try bq help\n"
    bq.run("help", "publish", "more", exit=64)
    bq.run("help", "urls", "sqlite", "more", exit=64)


# ---- manual pages and completions --------------------------------------------------------------------------------------


def test_manual_pages(new_bq, tmp_path):
    """bq.1, bq-urls.1 and a page for each verb, from the tables of the options: every option stands in its page."""
    bq = new_bq()
    bq.run("help", "man", tmp_path)
    pages = {path.name: path.read_text() for path in tmp_path.glob("*.1")}
    assert set(pages) == {"bq.1", "bq-urls.1", *(f"bq-{verb}.1" for verb in VERBS)}
    for verb in VERBS:
        page = pages[f"bq-{verb}.1"]
        assert page.splitlines()[1].startswith(f".TH BQ\\-{verb.upper()} 1 ")
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS"):
            assert f".SH {section}\n" in page
        for option in re.findall(r"^ +(?:-\w, )?--([\w-]+)", bq.run(verb, "--help").out.decode(), re.M):
            assert "\\-\\-" + option.replace("-", "\\-") in page, (verb, option)
        for line in page.splitlines():
            assert not re.match(r"[.'](?!\\\"|TH|SH|SS|PP|TP|RS|RE|nf|fi|nh|ad)", line), line
    assert "busy_timeout" in pages["bq-urls.1"]
    again = tmp_path / "again"
    again.mkdir()
    bq.run("help", "man", again)
    assert {path.name: path.read_text() for path in again.glob("*.1")} == pages
    assert bq.run("help", "man", tmp_path / "none", exit=74).err


COMPLETE = r"""
compopt() { :; }
. "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_bq
printf '%s\n' "${COMPREPLY[@]}"
"""


def test_bash_completion(new_bq, tmp_path):
    """Verbs, options of a verb, values of a fixed set, queues of the broker, configured names."""
    bq = new_bq()
    bq.run("publish", "-q", "orders", "urn:x", "{}")
    bq.run("publish", "-q", "invoices", "urn:x", "{}")
    bq.run("help", "completions", tmp_path)
    config = tmp_path / "urls"
    config.write_text("prod sqlite:a\ntest sqlite:b\n")
    config.chmod(0o600)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "bq").symlink_to(build.bq_path())

    def complete(*words):
        env = environment(BQ_URL=bq.url, BQ_CONFIG=config)
        env["PATH"] = f"{programs}:{env['PATH']}"
        done = subprocess.run(
            ["bash", "-c", COMPLETE, "bash", tmp_path / "bq.bash", "bq", *words],
            cwd=tmp_path, env=env, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert done.returncode == 0 and not done.stderr, done
        return sorted(done.stdout.split())

    assert complete("pu") == ["publish", "purge"]
    assert complete("-v", "-u", "x", "pee") == ["peek"]
    assert {"--exec", "--drain", "--url", "--handle-stdio"} <= set(complete("work", "-"))
    assert complete("work", "--retry-ji") == ["--retry-jitter"]
    assert complete("work", "--retry-jitter", "") == ["full", "none"]
    assert complete("work", "--format", "=", "f") == ["full"]
    assert complete("stats", "-q", "") == ["invoices", "orders"]
    assert complete("stats", "-u", "sqlite:none.db", "-q", "") == []
    assert complete("stats", "-u", "@") == ["@prod", "@test"]
    assert complete("help", "ur") == ["urls"]
    assert "urls" in complete("inspect", "u")


def test_completions_of_the_other_shells(new_bq, tmp_path):
    """zsh and fish get every verb and every option of it too."""
    bq = new_bq()
    bq.run("help", "completions", tmp_path)
    zsh, fish = (tmp_path / "_bq").read_text(), (tmp_path / "bq.fish").read_text()
    assert zsh.startswith("#compdef bq\n")
    for verb in VERBS:
        assert f"    {verb}) specs=(" in zsh
        assert f"__fish_use_subcommand -a {verb} " in fish
        for option in re.findall(r"^ +(?:-\w, )?--([\w-]+)", bq.run(verb, "--help").out.decode(), re.M):
            assert f"'--{option}" in zsh or f"'*--{option}" in zsh, option
            assert f" -l {option} " in fish or f" -l {option}\n" in fish, option


# ---- mistakes -------------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize(
    "args, says",
    [
        ([], "which command?"),
        (["publsih"], "did you mean 'publish'?"),
        (["xyzzy"], "unknown command 'xyzzy'\n"),
        (["-q", "orders", "publish"], "unknown option '-q'"),
        (["publish", "-q", "q", "u", "{}", "--tarce-id", "x"], "did you mean --trace-id?"),
        (["publish", "-q", "q", "u", "{}", "--xyzzy"], "unknown option '--xyzzy'\n"),
        (["publish", "-q", "q", "u", "{}", "-Z"], "unknown option '-Z'\n"),
        (["publish", "-q", "q", "u", "{}", "-vZ"], "unknown option '-Z' in '-vZ'\n"),
        (["publish", "-q", "q", "{}"], "'{}' is no URN: the URN comes first: bq publish -q QUEUE URN DATA"),
        (["publish", "-q", "q", "[1]", "{}"], "'[1]' is no URN"),
        (["work", "-q", "q", "--exec", "true", "--format", "full"], "--format belongs to --print"),
        (["publish", "-q", "q", "u", "{}", "--delay", "5d"], "--delay: '5d' is not a duration"),
        (["publish", "-q", "q", "u", "{}", "--delay=-1s"], "--delay: '-1s' is not a duration"),
        (["publish", "-q", "q", "u", "{}", "--timeout", "0"], "too short"),
        (["publish", "-q", "q", "u", "{}", "--color", "maybe"], "--color: 'maybe' is not one of auto|always|never"),
        (["publish", "-q", "q", "u", "{}", "--header", "novalue"], "--header: 'novalue' is not NAME=VALUE"),
        (["publish", "-q", "q", "u", "{}", "--header", "=v"], "is not NAME=VALUE"),
        (["publish", "-q", "q", "u", "{}", "--json=yes"], "--json takes no value"),
        (["publish", "-q", "q", "u", "{}", "--key"], "--key needs a value"),
        (["publish", "-q", "q", "u", "{}", "more"], "too many arguments, from 'more' on"),
        (["publish", "u", "{}"], "which queue?"),
        (["publish", "-q", "", "u", "{}"], "which queue?"),
        (["publish", "-q", "q"], "what is published?"),
        (["publish", "-q", "q", " ", "{}"], "the URN is blank"),
        (["publish", "-q", "q", "--raw", "u", "{}"], "--raw takes the whole body"),
        (["publish", "-q", "q", "--raw", "--trace-id", "x", "{}"], "--raw sends the body as it is"),
        (["publish", "-q", "q", "--lines", "u", "{}"], "--lines reads stdin"),
        (["publish", "-q", "q", "u", "{}", "--attempts", "0"], "--attempts: 0 is not between"),
        (["publish", "-q", "q", "u", "{}", "--backoff", "linear:1s"], "--backoff: 'linear:1s' is neither"),
        (["publish", "-q", "q", "u", "{}", "--remove-on-fail", "no"], "--remove-on-fail: 'no' is none of"),
        (["publish", "-q", "q", "u", "{}", "--job-id", "7"], "--job-id: '7' is a number"),
        (["work", "--exec", "true"], "which queue?"),
        (["work", "-q", "q"], "what is done with the messages?"),
        (["work", "-q", "q", "-q", "q", "--print"], "'q' stands twice"),
        (["work", "-q", "q", "--exec", "true", "--print"], "only one of"),
        (["work", "-q", "q", "--exec", ""], "the handler's command is empty"),
        (["work", "-q", "q", "--handle", "urn:x"], "--handle: 'urn:x' is not URN=CMD"),
        (["work", "-q", "q", "--handle", "=true"], "is not URN=CMD"),
        (["work", "-q", "q", "--handle", "u=a", "--handle", "u=b"], "u stands twice"),
        (["work", "-q", "q", "--print", "--dlq", "--no-dlq"], "--dlq or --no-dlq"),
        (["work", "-q", "q", "--print", "--drain=some"], "--drain: 'some' is not all"),
        (["work", "-q", "q", "--print", "--max", "0"], "--max: 0 is less than 1"),
        (["work", "-q", "q", "--print", "--max-attempts", "0"], "max_attempts"),
        (["work", "-q", "q", "--print", "--concurrency", "0"], "--concurrency: 0 is not between"),
        (["work", "-q", "q", "--print", "--prefetch", "x"], "--prefetch: 'x' is not a whole number"),
        (["work", "-q", "q", "--print", "--format", "xml"], "--format: 'xml' is not one of body|data|full"),
        (["work", "-q", "q", "--print", "--unknown", "ignore"], "--unknown: 'ignore' is not one of"),
        (["work", "-q", "q", "--print", "--retry-multiplier", "0.5"], "--retry-multiplier: 0.5 is not between"),
        (["work", "-q", "q", "--print", "--retry-jitter", "half"], "--retry-jitter"),
        (["work", "-q", "q", "--print", "extra"], "too many arguments"),
        (["inspect", "--record", "poisoned", "x"], "--record: 'poisoned' is not one of"),
        (["inspect", "--binding", "nats", "x"], "--binding: 'nats' is not one of"),
        (["inspect", "--rewrite", "attempts=", "x"], "--rewrite: 'attempts=' is not attempts=N"),
        (["inspect", "--rewrite", "attempts=99999999999", "x"], "is not attempts=N"),
        (["inspect", "--rewrite", "attempts=1", "--redrive", "x"], "only one of"),
        (["peek"], "which queue?"),
        (["peek", "-q", "q", "--offset", "first"], "--offset: 'first' is none of"),
        (["peek", "-q", "q", "--max", "0"], "--max: 0 is less than 1"),
        (["redrive"], "which queue?"),
        (["redrive", "-q", "q", "--rate", "0"], "--rate: '0' is not a rate"),
        (["redrive", "-q", "q", "--include", "posion"], "--include: 'posion' is neither"),
        (["redrive", "-q", "q", "--include", ""], "--include"),
        (["redrive", "-q", "q", "--reason", "other"], "--reason: 'other' is none of"),
        (["redrive", "-q", "q", "--from", "x", "--to", "x"], "the same queue"),
        (["purge", "-q", "q"], "say --yes"),
        (["purge", "--yes"], "which queue?"),
        (["version", "more"], "too many arguments"),
    ],
)
def test_usage(new_bq, tmp_path, args, says):
    """Exit 64, the reason on stderr, nothing on stdout, nothing done."""
    bq = new_bq()
    done = bq.run(*args, exit=64)
    assert says in err(done), done
    assert not done.out
    assert not (tmp_path / "bq.db").exists()


def test_quiet_keeps_errors(new_bq):
    bq = new_bq()
    assert "hint:" in err(bq.run("purge", "-q", "q", exit=64))
    quiet = bq.run("purge", "-q", "q", "--quiet", exit=64)
    assert "say --yes" in err(quiet) and "hint:" not in err(quiet)


def test_options_stand_anywhere(new_bq):
    bq = new_bq()
    bq.run("-v", "-u", bq.url, "publish", "urn:x", "-q", "orders", "{}", "--delay=0")
    bq.run("publish", "-qorders", "--", "urn:x", "{}")
    assert len(bq.peek("orders")) == 2
    assert bq.run("--json", "queues").json == [{"queue": "orders"}]


# ---- which broker --------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize("args", [["publish", "-q", "q", "u", "{}"], ["work", "-q", "q", "--print"], ["peek", "-q", "q"], ["queues"],
                                  ["stats"], ["redrive", "-q", "q"], ["purge", "-q", "q", "--yes"]])  # fmt: skip
def test_no_broker_named(new_bq, tmp_path, args):
    """Neither -u nor $BQ_URL: exit 64 and the hint; no file appears by accident."""
    bq = new_bq()
    for url in (None, ""):
        env = {"BQ_URL": url} if url is not None else {}
        done = subprocess.run(
            [build.bq_path(), *args], cwd=tmp_path, env=environment(HOME=tmp_path, **env), stdin=subprocess.DEVNULL,
            capture_output=True, timeout=30,
        )  # fmt: skip
        assert done.returncode == 64, done
        assert b"export BQ_URL=sqlite:bq.db" in done.stderr and not done.stdout
    assert list(tmp_path.iterdir()) == []
    assert bq.run("stats", "-u", "", exit=64).err


def test_the_option_beats_the_environment(new_bq, tmp_path):
    bq = new_bq()
    bq.run("publish", "-q", "mine", "urn:x", "{}")
    bq.run("publish", "-q", "orders", "urn:x", "{}", "-u", f"sqlite:{tmp_path / 'other.db'}")
    assert bq.run("queues").lines == [b"mine"]
    assert bq.run("queues", "--url", f"sqlite:{tmp_path / 'other.db'}").lines == [b"orders"]


def test_configured_urls(new_bq, tmp_path):
    """@NAME: from $BQ_CONFIG, else ~/.config/babelqueue/urls; by -u and by $BQ_URL."""
    bq = new_bq()
    home = tmp_path / "home"
    config = home / ".config" / "babelqueue" / "urls"
    config.parent.mkdir(parents=True)
    config.write_text(f"# urls\n\n  one   sqlite:{tmp_path / 'one.db'}  \ntwo\tsqlite:{tmp_path / 'two.db'}")
    config.chmod(0o600)
    bq.run("publish", "-u", "@one", "-q", "a", "urn:x", "{}", env={"HOME": home})
    bq.run("publish", "-q", "b", "urn:x", "{}", env={"HOME": home, "BQ_URL": "@two"})
    assert bq.run("queues", "-u", "@one", env={"HOME": home}).lines == [b"a"]
    assert bq.run("queues", "-u", f"sqlite:{tmp_path / 'two.db'}").lines == [b"b"]
    other = tmp_path / "urls"
    other.write_text(f"one sqlite:{tmp_path / 'two.db'}\n")
    other.chmod(0o600)
    assert bq.run("queues", "-u", "@one", env={"HOME": home, "BQ_CONFIG": other}).lines == [b"b"]
    assert bq.run("help", "names", env={"HOME": home}).lines == [b"one", b"two"]


def test_faults_of_the_configuration(new_bq, tmp_path):
    """Exit 78 with the file's name, and the line where there is one; its URLs, which may hold passwords, never shown."""
    bq = new_bq()
    config = tmp_path / "urls"

    def ask(name, mode=0o600, text="one sqlite:secret-a\n"):
        if text is None:
            config.unlink(missing_ok=True)
        else:
            config.write_bytes(text if isinstance(text, bytes) else text.encode())
            config.chmod(mode)
        said = err(bq.run("queues", "-u", name, env={"BQ_CONFIG": config}, exit=78))
        assert str(config) in said and "secret" not in said
        return said

    assert f"@one is looked up in {config}: No such file" in ask("@one", text=None)
    for mode in (0o640, 0o604, 0o644):
        assert "others may read it" in ask("@one", mode)
    assert f"chmod 600 {config}" in ask("@one", 0o644)
    assert "no URL is called 'two'" in ask("@two")
    assert "no URL is called ''" in ask("@")
    assert "line 2: expected NAME URL" in ask("@one", text="# secret\nsecret\n")
    assert "line 1: expected NAME URL" in ask("@one", text="one sqlite:secret more\n")
    assert "line 3: 'one' stands in line 1 already" in ask("@one", text="one sqlite:secret\n\none sqlite:secret2\n")
    assert "expected NAME URL" in ask("@one", text=b"one sqlite:sec\0ret\n")
    config.unlink()
    config.mkdir()
    assert "not a file" in err(bq.run("queues", "-u", "@one", env={"BQ_CONFIG": config}, exit=78))
    config.rmdir()
    config.symlink_to("/dev/zero")
    assert "not a file" in err(bq.run("queues", "-u", "@one", env={"BQ_CONFIG": config}, exit=78))


@pytest.mark.parametrize(
    "url, status, says",
    [
        ("nonsense", 64, ""),
        ("nats://localhost", 64, "unknown scheme \"nats\": built in are memory"),
        ("mysql://localhost", 64, "unknown scheme \"mysql\": built in are memory"),
        ("sqlit:bq.db", 64, "sqlite"),
        ("sqlite:bq.db?snyc=full", 64, "sync"),
        ("sqlite:bq.db?sync=half", 64, "sync"),
        ("sqlite:bq.db?busy_timeout=soon", 64, "busy_timeout"),
        ("sqlite:", 64, ""),
        ("memory:x?retry_after=5d", 64, "retry_after"),
    ],
)
@pytest.mark.parametrize("args", [["publish", "-q", "q", "u", "{}"], ["work", "-q", "q", "--print", "--drain"], ["stats"]])
def test_bad_urls(new_bq, tmp_path, args, url, status, says):
    bq = new_bq()
    done = bq.run(*args, "-u", url, exit=status)
    assert says in err(done) and err(done).startswith("bq: ")
    assert list(tmp_path.iterdir()) == []


def test_a_transport_that_is_not_built_in(new_bq):
    bq = new_bq()
    for scheme in bq.run("version", "--json").json[0]["not_built"][:3]:
        done = bq.run("publish", "-u", f"{scheme}://user:hunter2@localhost/", "-q", "q", "u", "{}", exit=78)
        assert without_driver(bq, scheme) in err(done) and "hunter2" not in err(done)


def test_a_directory_that_is_not_there(new_bq, tmp_path):
    """The broker cannot be reached: not 64, not 0, and soon."""
    bq = new_bq(f"sqlite:{tmp_path / 'none' / 'bq.db'}")
    for args in (["publish", "-q", "q", "u", "{}"], ["work", "-q", "q", "--print", "--drain"], ["stats"], ["redrive", "-q", "q"]):
        done = bq.run(*args, "--timeout", "1s", exit=None, timeout=20)
        assert done.code in (69, 77, 78), done
        assert err(done).startswith("bq: ") and not done.out


def test_options_that_a_transport_has_not(new_bq, tmp_path):
    """BullMQ's job options and a FIFO group: exit 78 on other transports, and nothing published."""
    bq = new_bq()
    for option in (["--attempts", 3], ["--backoff", "fixed:5s"], ["--backoff", "exponential:1s:0.5"], ["--priority", 1], ["--lifo"],
                   ["--job-id", "a1"], ["--remove-on-complete", "yes"], ["--remove-on-complete", "100"], ["--remove-on-fail", "1h"],
                   ["--keep-logs", 5], ["--dedup", "d"], ["--group", "g"]):  # fmt: skip
        done = bq.run("publish", "-q", "q", "u", "{}", *option, exit=78)
        assert f"{option[0]}: not supported by this transport" in err(done)
    assert "--failed: not supported" in err(bq.run("redrive", "-q", "q", "--failed", exit=78))
    for option in (["--partition", 0], ["--offset", "-5"], ["--offset", "earliest"], ["--since", "1h"]):
        assert "not supported" in err(bq.run("peek", "-q", "q", *option, exit=78))
    assert not (tmp_path / "bq.db").exists()


def test_colours(new_bq):
    bq = new_bq()
    assert b"\x1b[" not in bq.run("help").out
    assert b"\x1b[1mCommands:\x1b[0m" in bq.run("help", "--color", "always").out
    assert b"\x1b[" in bq.run("stats", "--color=always", "-u", "x", exit=64).err
    assert b"\x1b[" not in bq.run("stats", "-u", "x", exit=64, env={"TERM": "xterm"}).err
