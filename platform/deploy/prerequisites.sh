#!/bin/sh
# What pip cannot bring, looked at before anything is downloaded: sh platform/deploy/prerequisites.sh python3
# As root on Debian or Ubuntu it is installed; elsewhere this says what to install, and stops.
set -eu
python=$1
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
missing=""

# llama.cpp's library, the leaf's engine, links it.
"$python" -c 'import ctypes; ctypes.CDLL("libgomp.so.1")' 2>/dev/null || missing="$missing libgomp1"
# Triton's Python backend links it; Debian's own python3 is built without.
"$python" -c '
import ctypes, sys, sysconfig
from pathlib import Path
name = "libpython%d.%d.so.1.0" % sys.version_info[:2]
folders = [Path(sys.base_prefix) / "lib", Path(str(sysconfig.get_config_var("LIBDIR")))]
any((folder / name).is_file() for folder in folders) or ctypes.CDLL(name)
' 2>/dev/null || missing="$missing libpython$version"
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python$version-venv"

test -n "$missing" || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing what the system lacks:$missing"
    apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
    echo "The system lacks:$missing. Debian and Ubuntu: apt-get install$missing"
    exit 1
fi
