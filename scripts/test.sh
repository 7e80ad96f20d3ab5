#!/usr/bin/env bash
# Sets up what the tests need and runs them: scripts/test.sh [pytest options].
# The default suite leaves out the tests marked slow; `scripts/test.sh -m slow` runs those.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup all,test
cd "$root"
exec "$venv/bin/python" -m pytest "$@"
