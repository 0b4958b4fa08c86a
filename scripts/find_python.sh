#!/bin/sh
# Print the path of a Python 3.11 to 3.13 that can make a virtual environment. PYTHON=... in the environment decides.
# Candidates are run, not only found: a version manager may leave commands on PATH that start nothing.
set -u

probe='
import sys
if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    sys.exit("it is version %d.%d" % sys.version_info[:2])
try:
    import ensurepip, venv
except ImportError as error:
    sys.exit("it has no module %s (Debian and Ubuntu: apt install python%d.%d-venv)" % ((error.name,) + sys.version_info[:2]))
print(sys.executable)
'

if [ -n "${PYTHON:-}" ]; then
    set -- "$PYTHON"
else
    set -- python3 python3.13 python3.12 python3.11
fi

reasons=""
for candidate; do
    if ! command -v "$candidate" >/dev/null 2>&1; then
        reasons="$reasons
  $candidate: not found"
    elif answer=$("$candidate" -c "$probe" 2>&1); then
        echo "$answer"
        exit 0
    else
        reasons="$reasons
  $candidate: $(echo "$answer" | head -n 1)"
    fi
done

echo "No Python 3.11, 3.12 or 3.13 that can make a virtual environment. Tried:$reasons
Install one, or name it: make setup PYTHON=/usr/bin/python3.11" >&2
exit 1
