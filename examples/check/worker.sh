#!/usr/bin/env bash
# Checks worker.c: routes, a retry, a rejected and an exhausted message, and the end by SIGTERM.
# shellcheck source=examples/check/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

for data in '{"order":1}' '{"order":2}' '{"order":3}' '{"item":"tea"}'; do
  bq publish -q orders urn:babel:orders:created "$data" >/dev/null
done
bq publish -q orders urn:babel:orders:cancelled '{"order":1}' >/dev/null

worker >out 2>err &
settled() { [ "$(bq stats -q orders)" = '{"queue":"orders","ready":0,"delayed":0,"in_flight":0,"dead":2}' ]; }
await settled
kill -TERM $!
wait $! # its exit status is 0, or this script ends here

expect 1 '^order 1: shipped$' out
expect 1 '^order 2: shipped$' out
expect 0 '^order 3: shipped$' out
expect 1 '^cancelled: \{"order":1\}$' out
expect 1 '^acknowledged 3, retried 3, dead-lettered 2$' out
expect 3 '^attempt [12]: the warehouse did not answer: to be retried$' err
expect 1 '^attempt 3: the warehouse did not answer: dead-lettered$' err
expect 1 '^attempt 1: there is no order number: dead-lettered$' err
bq peek -q orders.dlq >dead
expect 1 '"data":\{"order":3\}.*"error":"the warehouse did not answer","exception":"WarehouseDown".*"attempts":3,' dead
expect 1 '"data":\{"item":"tea"\}.*"error":"there is no order number","exception":"BadOrder".*"attempts":1,' dead
