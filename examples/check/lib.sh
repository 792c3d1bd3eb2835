# shellcheck shell=bash
# What the scripts of this directory share. Each runs one program of examples/ in an empty directory, with bq and
# the programs in PATH, and checks what it printed.
set -Eeuo pipefail
export BQ_URL=sqlite:bq.db

expect() { # expect COUNT PATTERN FILE: so many lines of the file match
  local found
  found=$(grep -cE -- "$2" "$3" || true)
  if [ "$found" -ne "$1" ]; then
    printf '%s has %d lines that match %s, not %d:\n' "$3" "$found" "$2" "$1" >&2
    cat "$3" >&2
    exit 1
  fi
}

stats() { # stats QUEUE READY DEAD: what is on the queue, nothing delayed or in flight
  local want="{\"queue\":\"$1\",\"ready\":$2,\"delayed\":0,\"in_flight\":0,\"dead\":$3}" got
  got=$(bq stats -q "$1")
  if [ "$got" != "$want" ]; then
    printf 'bq stats says %s, not %s\n' "$got" "$want" >&2
    exit 1
  fi
}

await() { # await COMMAND...: until it succeeds, at most 20 s
  local end=$((SECONDS + 20))
  until "$@"; do
    if [ "$SECONDS" -ge "$end" ]; then
      printf 'waited in vain for: %s\n' "$*" >&2
      exit 1
    fi
    sleep 0.05
  done
}
