#!/usr/bin/env bash
# Checks what the README promises of its first minute.
# shellcheck source=examples/check/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

sh "$(dirname "${BASH_SOURCE[0]}")/../quickstart.sh" >out 2>err
expect 2 '^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' out
expect 1 '^\{"queue":"orders","ready":2,"delayed":0,"in_flight":0,"dead":0\}$' out
expect 1 '^attempt 1: \{"order":1,"item":"tea"\}$' out
expect 4 '^attempt [123]: \{"order":2,"item":"kettle"\}$' out
expect 1 '^bq: handled 4, retried 2, dead-lettered 1, dropped 0, poison 0, gated 0, leases lost 0$' err
expect 1 '"dead_letter":\{"reason":"failed","error":"no kettle left","exception":"exit status 1",.*"attempts":3,' out
expect 1 '"from":"orders.dlq","to":"orders","redriven":true' out
expect 1 '^bq: handled 1, retried 0, dead-lettered 0, ' err
stats orders 0 0
