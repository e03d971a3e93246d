#!/usr/bin/env bash
# Runs every line of the ```sh blocks of docs/ that begins with `dtensor `. Others (bazel, scripts)
# are run by scripts/check_readme or by hand.
set -uo pipefail
PATH="$PWD/tools:$PATH"
failed=0 seen=0
while IFS= read -r line; do
  seen=$((seen + 1))
  bash -c "$line" >/dev/null || { echo "FAILED ($?): $line" >&2; failed=1; }
done < <(awk '/^```sh$/ {inside = 1; next} /^```$/ {inside = 0} inside && /^dtensor /' docs/*.md)
echo "$seen commands"
((seen > 0 && failed == 0))
