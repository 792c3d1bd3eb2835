# shellcheck shell=bash
# What the scripts of this directory share. Each runs one program of examples/ in an empty directory, with bq and
# the programs in PATH, and checks what it printed.
set -Eeuo pipefail
export BQ_URL=sqlite:bq.db

# What the programs said is lost with the directory, unless it is told now.
tell() {
  local status=$? file
  if [ "$status" -eq 0 ] || [ "$status" -eq 77 ]; then return; fi
  for file in out err; do
    if [ -s "$file" ]; then
      printf -- '---- %s\n' "$file" >&2
      tail -n 60 "$file" >&2
    fi
  done
}
trap tell EXIT

expect() { # expect COUNT PATTERN FILE: so many lines of the file match
  local found
  found=$(grep -cE -- "$2" "$3" || true)
  if [ "$found" -ne "$1" ]; then
    printf '%s has %d lines that match %s, not %d\n' "$3" "$found" "$2" "$1" >&2
    case $3 in out | err) ;; *) cat "$3" >&2 ;; esac
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
