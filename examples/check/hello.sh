#!/usr/bin/env bash
# Checks hello.c, which uses sqlite:bq.db whatever the environment says.
# shellcheck source=examples/check/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

hello >out
printf 'attempt 1: {"text":"hello"}\n' | cmp - out
stats greetings 0 0
# What others left there is worked, too; nobody here knows the second one.
bq publish -q greetings urn:babel:greetings:said '{"text":"hi"}' >/dev/null
bq publish -q greetings urn:babel:greetings:sung '{}' >/dev/null
hello >out
expect 1 '^attempt 1: \{"text":"hi"\}$' out
stats greetings 0 1
