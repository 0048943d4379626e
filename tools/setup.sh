#!/bin/sh
# Installs the packages that a build, a test run or fuzzing needs. Takes milliseconds if nothing is
# missing. Usage: tools/setup.sh run|build|test|fuzz
# `run` is `build` without what only the server needs.
# SPDX-License-Identifier: MIT
set -eu

# One package per line; a new dependency is one more line.
build_packages="
  g++
  cmake
  ninja-build
  git
  libgtest-dev
  nlohmann-json3-dev
  libcli11-dev
  libdlpack-dev
  libhwy-dev
  libpcre2-dev
  libutf8proc-dev
"
server_packages="
  libboost-dev
  libssl-dev
"
test_packages="
  python3
  python3-pip
  python3-venv
  python3-setuptools
  python3-wheel
  python3-numpy
  python3-pytest
"
# Not in every release. Without ccache rebuilds are slower; tests that need the others are skipped.
optional_build_packages="
  ccache
"
optional_test_packages="
  chromium-headless-shell
  clang-format-14
  python3-jsonschema
  python3-torch
  wrk
"

required=$build_packages
if [ "${1:-build}" != run ]; then
  required="$required $server_packages"
fi
optional=$optional_build_packages
if [ "${1:-build}" = test ]; then
  required="$required $test_packages"
  optional="$optional $optional_test_packages"
fi

# Fuzzing needs clang 16 or newer, whichever version the release has.
if [ "${1:-build}" = fuzz ] && ! sh tools/find_clang.sh >/dev/null; then
  for version in 20 19 18 17 16; do
    if LC_ALL=C apt-cache policy "clang-$version" 2>/dev/null | grep -q 'Candidate: [^(]'; then
      required="$required clang-$version libclang-rt-$version-dev"
      break
    fi
  done
fi

check_cmake() {
  version=$(cmake --version | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')
  if [ "$(printf '3.25\n%s\n' "$version" | sort -V | head -n 1)" != 3.25 ]; then
    echo "CMake $version is too old; 3.25 or newer is needed (Debian 12, Ubuntu 24.04)." >&2
    exit 1
  fi
}

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "Not a Debian or Ubuntu machine: the packages are taken to be installed." >&2
  check_cmake
  exit 0
fi

# Packages that were not found after an update are not searched for again.
unavailable_list=build/unavailable_packages
unavailable=$(cat "$unavailable_list" 2>/dev/null || true)

# Prints the arguments that are neither installed nor known to be unavailable.
missing_of() {
  known=" $(dpkg-query -W -f '${Package}=${db:Status-Status} ' "$@" 2>/dev/null || true)"
  for package in "$@"; do
    case "$known" in *" $package=installed "*) continue ;; esac
    case " $(echo $unavailable) " in *" $package "*) continue ;; esac
    printf '%s ' "$package"
  done
}

is_available() {
  LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [^(]'
}

missing=$(missing_of $required)
missing_optional=$(missing_of $optional)
if [ -z "$missing$missing_optional" ]; then
  check_cmake
  exit 0
fi

if [ "$(id -u)" = 0 ]; then
  as_root="env"
elif command -v sudo >/dev/null 2>&1 && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
  as_root="sudo env"
elif [ -z "$missing" ]; then
  echo "Going on without $missing_optional(needs root to install)." >&2
  check_cmake
  exit 0
else
  for package in $missing_optional; do
    if is_available "$package"; then missing="$missing$package "; fi
  done
  echo "Packages are missing, and this user cannot install them. Run as root:" >&2
  echo "  apt-get update && apt-get install -y $missing" >&2
  exit 1
fi

apt="$as_root DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0"
log=build/setup.log
mkdir -p build
: >"$log"

# Runs apt-get and shows its output only if it fails.
run_apt() {
  if ! $apt "$@" >>"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "apt-get $* failed; the whole output is in $log." >&2
    exit 1
  fi
}

run_apt update
for package in $missing_optional; do
  if is_available "$package"; then
    missing="$missing$package "
  else
    echo "This distribution has no $package: going on without it." >&2
    echo "$package" >>"$unavailable_list"
  fi
done
if [ -n "$missing" ]; then
  echo "Installing $missing"
  run_apt install -y --no-install-recommends $missing
fi
check_cmake
