#!/bin/sh
# Fetches promtool of the Debian package prometheus to build/promtool, without installing the
# package, which would start a server. Says so and goes on where that is not possible.
# SPDX-License-Identifier: MIT
set -eu
cd "$(dirname "$0")/.."

if command -v promtool >/dev/null 2>&1 || [ -x build/promtool/usr/bin/promtool ]; then exit 0; fi
mkdir -p build/promtool
if (cd build/promtool && apt-get -qq download prometheus &&
    dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool &&
    rm prometheus_*.deb) >build/promtool.log 2>&1; then
  exit 0
fi
rm -rf build/promtool
echo "promtool could not be fetched (build/promtool.log says why): its test is skipped." >&2
