#!/usr/bin/env bash
# Checks coprocess.py: a Python process that works the messages of a queue.
# shellcheck source=examples/check/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
command -v python3 >/dev/null || exit 77

for ((i = 1; i <= 50; i++)); do printf '{"order":%d}\n' "$i"; done |
  bq publish -q orders --lines urn:babel:orders:created >/dev/null 2>&1
bq publish -q orders urn:babel:orders:created '{"item":"tea"}' >/dev/null
bq publish -q orders urn:babel:orders:painted '{}' >/dev/null

status=0
bq work -q orders --handle-stdio "python3 '$here/coprocess.py'" --drain=all 2>err || status=$?
[ "$status" -eq 1 ] # something was dead-lettered
expect 50 '^order [0-9]+: shipped$' err
expect 1 'attempt 1: failed: Retry: the warehouse did not answer; to be retried' err
expect 1 '^bq: handled 53, retried 1, dead-lettered 2, ' err
bq peek -q orders.dlq >dead
expect 1 '"error":"there is no order number","exception":"Rejected"' dead
expect 1 '"error":"nobody knows urn:babel:orders:painted","exception":"Rejected"' dead
stats orders 0 2
