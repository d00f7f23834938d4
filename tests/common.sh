# What tests in shell share: a folder that goes away again, and failures that are counted. Sourced with
# the programs that the test needs; without one of them it is skipped.
set -u
for tool in "$@"; do
    command -v "$tool" >/dev/null || { echo "skip: no $tool"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAIL $*"
    failed=1
}
