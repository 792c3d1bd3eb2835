#!/usr/bin/env bash
# Checks deferred.c: two hundred messages at a time, each acknowledged once.
# shellcheck source=examples/check/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

for ((i = 0; i < 400; i++)); do printf '{"order":%d}\n' "$i"; done |
  bq publish -q orders --lines urn:babel:orders:created >ids 2>/dev/null
[ "$(sort -u ids | wc -l)" -eq 400 ]
deferred >out
expect 1 '^acknowledged 400, [0-9]+ at a time at most$' out
# One at a time would be a blocking handler.
[ "$(sed -E 's/.*, ([0-9]+) at.*/\1/' out)" -gt 1 ]
stats orders 0 0
