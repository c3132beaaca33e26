#!/usr/bin/env bash
# Build a virtual environment from requirements.lock, unless the one that is there was built from the same lock by
# the same kind of interpreter, in this folder, and still runs. Usage: PYTHON=python3 [NAMED=yes] tools/setup.sh .venv
# NAMED says that the user chose PYTHON: an environment of another interpreter is then replaced.
set -euo pipefail
venv=$1
die() { echo "setup: $*" >&2; exit 1; }

version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) \
    || die "cannot run '$PYTHON': install Python 3.11 or newer, or name one with PYTHON=/path/to/python3"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    || die "'$PYTHON' is Python $version: 3.11 or newer is needed, name one with PYTHON=/path/to/python3"

stamp=$("$PYTHON" -c 'import hashlib; print(hashlib.sha256(open("requirements.lock", "rb").read()).hexdigest())')
if [ -f "$venv/.ready" ] && built=$("$venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null); then
    if [ -z "${NAMED:-}" ] || [ "$built" = "$version" ]; then
        [ "$(cat "$venv/.ready")" != "$stamp $built $PWD" ] || exit 0
    fi
fi

echo "setup: building $venv with Python $version from requirements.lock (one to five minutes)" >&2
rm -rf "$venv"
"$PYTHON" -m venv "$venv" || die "'$PYTHON -m venv' failed: install the venv module (Debian: python3-venv)"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
# The lock is complete, so pip need not resolve anything; where it does, a newer release of a package that is asked for
# with an extra ("coverage[toml]") stops it, because the lock has no hash of that release.
pip install --no-deps --require-hashes -r requirements.lock \
    || die "packages could not be installed; without internet, point pip at a mirror or a folder of wheels (PIP_INDEX_URL, PIP_FIND_LINKS) and run make setup again"
pip install --no-deps --no-build-isolation --editable .
echo "$stamp $version $PWD" > "$venv/.ready"
