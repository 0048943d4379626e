#!/bin/bash
# Soak test of the engine on the CPU: random requests, cancellations and preemptions for SECONDS. At
# the end, pages, file descriptors and memory must be back where they started.
# Usage: tools/soak.sh [SECONDS] [PRESET] [--seed N]
# SPDX-License-Identifier: MIT
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-600}
preset=${2:-cpu}
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset" --target tessera_soak
exec "build/$preset/tests/engine/soak/tessera_soak" --seconds "$seconds" "${@:3}"
