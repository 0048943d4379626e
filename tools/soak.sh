#!/bin/bash
# A soak of the engine on the CPU: random requests, cancels and preemptions for SECONDS, after which
# pages, descriptors and memory must be where they began.
# Usage: tools/soak.sh [SECONDS] [PRESET] [--seed N]
# SPDX-License-Identifier: MIT
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-600}
preset=${2:-cpu}
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset" --target tessera_soak
exec "build/$preset/tests/engine/soak/tessera_soak" --seconds "$seconds" "${@:3}"
