#!/usr/bin/env bash
# Checks inspect.c: a good body, from a file and from stdin, and a bad one.
# shellcheck source=examples/check/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

bq publish -q orders urn:babel:orders:created '{"total":1.0,"big":18446744073709551615,"items":[{"sku":"tea"}]}' >id
bq peek -q orders >message.json
inspect message.json >out
expect 1 '^verdict: ok$' out
expect 1 '^urn: urn:babel:orders:created$' out
expect 1 "^id: $(cat id)\$" out
expect 1 '^attempts: 0$' out
expect 1 '^  total = 1\.0$' out
expect 1 '^  big = 18446744073709551615$' out
expect 1 '^first item: "tea"$' out
inspect <message.json | cmp - out

status=0
printf '{"job":"urn:babel:orders:created","data":{"a":1}' | inspect >out || status=$?
[ "$status" -eq 65 ]
expect 1 '^verdict: poison/json$' out
expect 1 '^reason: .+, at byte [0-9]+$' out
