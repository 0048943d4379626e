#!/bin/sh
# Runs a CUDA compiler, and fails if ptxas reports that it serialised the WGMMAs of a kernel.
# SPDX-License-Identifier: MIT
#
#   tools/check_wgmma.sh COMPILER ARGUMENTS...      a CMAKE_CUDA_COMPILER_LAUNCHER, before ccache
#
# Such a kernel is correct but slow. ptxas reports it only as information (C7510 and similar), which
# no option turns into a warning or an error.
set -u

object=
previous=
for argument in "$@"; do
  if [ "$previous" = -o ]; then object=$argument; fi
  previous=$argument
done

log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" 2>"$log"
status=$?
cat "$log" >&2
if [ $status -eq 0 ] && grep -q 'wgmma.mma_async instructions are serialized' "$log"; then
  rm -f "$object" # otherwise the next build would treat it as up to date
  echo "check_wgmma: serialised WGMMAs in $object: use fewer registers, and leave those of a" \
    "WGMMA in flight alone" >&2
  status=1
fi
exit $status
