# shellcheck shell=bash
# shellcheck disable=SC2034 # the variables are for the scripts that source this
# What the scripts of this directory share. Sourced, not run.

# The project's directory, however the script was called.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Downloads, the Python environment and the compiler cache. Nothing is written elsewhere
# but in the build directories.
cache=${BQ_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/babelqueue}
venv=$cache/venv
# Where each preset has its build directory.
builds=${BQ_BUILD_ROOT:-$root/build}

say() { printf '%s\n' "$*" >&2; }
die() {
  say "${0##*/}: $*"
  exit 1
}

# configure PRESET [cmake arguments]: in $builds/PRESET, with ccache when there is one.
configure() {
  local preset=$1 dir=$builds/$1 launcher
  shift
  # A build directory that came along with a copied tree points to the old place.
  if [ -f "$dir/CMakeCache.txt" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$dir/CMakeCache.txt"; then
    rm -rf "$dir"
  fi
  launcher=$(command -v ccache || true)
  (cd "$root" && cmake --preset "$preset" -B "$dir" -DCMAKE_C_COMPILER_LAUNCHER="$launcher" "$@")
}

export CCACHE_DIR=${CCACHE_DIR:-$cache/ccache} CCACHE_MAXSIZE=${CCACHE_MAXSIZE:-1G}
