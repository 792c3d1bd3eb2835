#!/usr/bin/env bash
# Checks redrive.c on the dead letters that worker.c leaves: one goes back, marked as replayed, the other stays.
# shellcheck source=examples/check/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

down=$(bq publish -q orders urn:babel:orders:created '{"order":3}')
bad=$(bq publish -q orders urn:babel:orders:created '{"item":"tea"}')
worker >/dev/null 2>&1 &
dead() { [ "$(bq stats -q orders.dlq)" = '{"queue":"orders.dlq","ready":2,"delayed":0,"in_flight":0,"dead":0}' ]; }
await dead
kill -TERM $!
wait $!
stays=$(bq peek -q orders.dlq | grep "$bad")

redrive >out
expect 1 "^would go: $down to orders\$" out
expect 1 "^sent: $down to orders\$" out
expect 2 "^(would go|sent): $bad stays: .+\$" out
expect 1 '^2 seen, 1 sent back, 1 stay$' out
stats orders 1 1
[ "$(bq peek -q orders.dlq)" = "$stays" ] # byte for byte
bq peek -q orders --format full >peeked
expect 1 '"bq-replay-bypass":"1"' peeked
# shellcheck disable=SC2016 # the handler's own variables
bq work -q orders --exec 'echo "replay $BQ_REPLAY, attempts $BQ_ATTEMPTS"' --drain >out 2>/dev/null
expect 1 '^replay 1, attempts 0$' out
