#!/usr/bin/env bash
# Checks publish.c: a message at a time and many at once, in the order in which they were submitted.
# shellcheck source=examples/check/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

publish >out
expect 1 '^published [0-9a-f-]{36}$' out
expect 1 '^100 confirmed, 0 unknown, 0 failed$' out
stats orders 101 0
bq peek -q orders --format data >published
{
  echo '{"order":1,"total":19.90}' # its bytes were kept: 19.90, not 19.9
  for ((i = 2; i <= 101; i++)); do printf '{"order":%d}\n' "$i"; done
} | cmp - published

# A broker that cannot be used is an error with the status of its kind.
status=0
BQ_URL=sqlite:/proc/none/bq.db publish >out 2>err || status=$?
[ "$status" -ne 0 ]
expect 1 '^publish: .*/proc/none' err
