#!/usr/bin/env bash
# A tour of the main job, in the current directory, with bq in PATH and no server: three
# orders are published and worked by a shell script; one is retried, one ends in the
# dead-letter queue and is replayed once its cause is mended.
set -Eeuo pipefail

number=0
step() { # step TEXT: a numbered heading
  number=$((number + 1))
  printf '\n%d. %s\n' "$number" "$1"
}
run() { # run STATUS COMMAND: shows a command as it is typed, then runs it; it must exit so
  local want=$1 got=0
  printf '\n$ %s\n' "$2"
  eval "$2" || got=$?
  if [ "$got" -ne "$want" ]; then
    printf 'the tour expected exit status %d, not %d\n' "$want" "$got" >&2
    exit 1
  fi
}

step "Say where the queues are. A file will do: there is no server to start."
run 0 'export BQ_URL=sqlite:bq.db'

step "Publish three orders. Each prints the id that its message was given."
run 0 "bq publish -q orders urn:babel:orders:created '{\"order\":1,\"item\":\"tea\"}'"
run 0 "bq publish -q orders urn:babel:orders:created '{\"order\":2,\"item\":\"kettle\"}'"
run 0 "bq publish -q orders urn:babel:orders:created '{\"order\":3,\"item\":\"samovar\"}'"
run 0 'bq stats -q orders'

step "A handler is any command: the data comes on its standard input, 0 means done."
cat >handler.sh <<'HANDLER'
#!/bin/sh
order=$(cat)
echo "  handler: attempts so far $BQ_ATTEMPTS, $order"
case $order in
*'"order":2'*) # the warehouse answers the second time
    if [ "$BQ_ATTEMPTS" -eq 0 ]; then echo "warehouse did not answer" >&2; exit 1; fi ;;
*'"order":3'*) # nobody can pay for this one, yet
    if [ ! -e card-accepted ]; then echo "card declined" >&2; exit 1; fi ;;
esac
HANDLER
chmod +x handler.sh
run 0 'cat handler.sh'

step "Work the queue until it is empty: order 2 is retried, order 3 fails three times and
   becomes a dead letter. Exit status 1 says that not everything went well."
run 1 'bq work -q orders --exec ./handler.sh --max-attempts 3 --retry-backoff 200ms --drain=all'

step "Look at the dead letter: the message as it was, with the reason added."
run 0 'bq peek -q orders.dlq'
run 0 'bq peek -q orders.dlq | bq inspect --lines -'

step "Mend the cause, send the dead letter back to its queue, and work it again."
run 0 'touch card-accepted'
run 0 'bq redrive -q orders'
run 0 'bq work -q orders --exec ./handler.sh --drain'

step "Nothing is left."
run 0 'bq stats -q orders -q orders.dlq'
