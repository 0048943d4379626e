#!/bin/sh
# Prints the architecture of this machine's first GPU, such as 90; prints nothing if there is no GPU
# that the kernels run on.
# SPDX-License-Identifier: MIT
set -eu

oldest=80
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
  head -n 1 | tr -d '. ')
case $capability in '' | *[!0-9]*) exit 0 ;; esac
if [ "$capability" -ge "$oldest" ]; then echo "$capability"; fi
