# Sourced by the other scripts: `setup EXTRAS` makes .venv hold the package with these extras.
# A second call with the same extras and an unchanged pyproject.toml returns at once.
set -euo pipefail
root=$(cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${HYOCR_VENV:-$root/.venv}

say() { echo "$*" >&2; }

find_python() {
  local name
  for name in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.10 python3.14; do
    if command -v "$name" >/dev/null &&
      "$name" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 15))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
  say "No Python 3.10 to 3.14 was found. Install one, or name it: PYTHON=/path/to/python3 $0"
  exit 5
}

setup() {
  local extras=$1 stamp wanted python
  stamp="$venv/.hyocr-$extras"
  wanted=$(cksum <"$root/pyproject.toml")
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    return
  fi
  python=$(find_python)
  say "Setting up $venv with [$extras] (once; needs the network) ..."
  if ! "$python" -m venv "$venv" >&2; then
    say "The virtual environment cannot be made. On Debian or Ubuntu: apt install python3-venv"
    exit 5
  fi
  if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e "$root[$extras]" >&2; then
    say "The packages could not be installed (the lines above say why). Is the network reachable?"
    exit 5
  fi
  echo "$wanted" >"$stamp"
}
