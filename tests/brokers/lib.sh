# shellcheck shell=bash
# Shared by every broker's script: brokers/NAME.sh start | ready | stop | wipe.
#
# A script sets NAME, sources this file, defines setup (installs what is missing), launch (starts it with `bg`) and
# ready (true when it answers), and ends with `run "$@"`. BROKERS_ROOT holds caches and data.
set -Eeuo pipefail
trap 'echo "$NAME: failed, see $D" >&2' ERR
ROOT=${BROKERS_ROOT:-${TMPDIR:-/tmp}/bq-brokers}
CACHE=$ROOT/cache
D=$ROOT/run/$NAME${INSTANCE:+-$INSTANCE}
PIDF=$D/pid
mkdir -p "$CACHE/apt/partial" "$D"

apt_get() { # apt_get PACKAGE...: installs what is missing, keeping the .deb files
  dpkg -s "$@" >/dev/null 2>&1 && return 0
  local sudo=()
  [ "$(id -u)" -eq 0 ] || sudo=(sudo)
  local install=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends
    -o Dir::Cache::archives="$CACHE/apt" -o APT::Keep-Downloaded-Packages=true -o DPkg::Lock::Timeout=300 install "$@")
  "${install[@]}" >"$D/apt.log" 2>&1 || {
    "${sudo[@]}" apt-get -qq update
    "${install[@]}"
  } >>"$D/apt.log" 2>&1
}

pip_venv() { # pip_venv DIR REQUIREMENT...
  local venv=$1
  shift
  [ -e "$venv/.ok" ] && return 0
  "${PYTHON:-python3}" -m venv "$venv"
  "$venv/bin/pip" -q --disable-pip-version-check --cache-dir "$CACHE/pip" install "$@" >"$D/pip.log" 2>&1
  touch "$venv/.ok"
}

alive() { # true when every process lives
  [ -s "$PIDF" ] || return 1
  local pid
  while read -r pid; do kill -0 "$pid" 2>/dev/null || return 1; done <"$PIDF"
}

stop() { # last started first: TERM, then KILL after 20 s
  [ -e "$PIDF" ] || return 0
  local pid
  for pid in $(tac "$PIDF"); do
    kill "$pid" 2>/dev/null || continue
    for _ in $(seq 200); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
  done
  rm -f "$PIDF"
}

start() {
  if ! alive; then
    stop
    setup
    if ready >/dev/null 2>&1; then
      echo "$NAME: its port is taken by a stranger" >&2
      return 1
    fi
    launch
  fi
  for _ in $(seq "${TRIES:-600}"); do
    if alive && ready >/dev/null 2>&1; then
      echo "$NAME is ready, pid $(xargs <"$PIDF")"
      return 0
    fi
    alive || break
    sleep 0.1
  done
  echo "$NAME did not start, see $D" >&2
  tail -n 5 "$D/log" >&2
  return 1
}

run() {
  case ${1:-start} in
  start) start ;;
  ready) ready ;;
  stop) stop ;;
  wipe)
    stop
    rm -rf "$D"
    ;;
  *)
    echo "usage: $0 start|ready|stop|wipe" >&2
    return 64
    ;;
  esac
}

bg() {
  setsid "$@" >"$D/log" 2>&1 </dev/null &
  echo $! >>"$PIDF"
}
