#!/bin/sh
# Runs a CUDA compiler, and fails where ptxas says that a kernel's WGMMAs wait for one another.
# SPDX-License-Identifier: MIT
#
#   tools/check_wgmma.sh COMPILER ARGUMENTS...      a CMAKE_CUDA_COMPILER_LAUNCHER, before ccache
#
# Such a kernel is right and slow. ptxas only informs of it (C7510 and its neighbours), which no
# option turns into a warning, and so into an error.
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
  rm -f "$object" # or the next build would take it for made
  echo "check_wgmma: serialised WGMMAs in $object: hold fewer registers, touch none in flight" >&2
  status=1
fi
exit $status
