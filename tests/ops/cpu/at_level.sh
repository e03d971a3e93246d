#!/usr/bin/env bash
# Runs programs of tests with the kernels of another instruction set: at_level.sh LEVEL PROGRAM...
set -uo pipefail
export DTENSOR_SIMD=$1
shift
unset XML_OUTPUT_FILE  # of which each program would leave its own
failed=0
for program in "$@"; do
  echo "== $DTENSOR_SIMD $program"
  "$program" || failed=1
done
exit "$failed"
