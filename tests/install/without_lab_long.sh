# -DORDO_LAB=OFF: the product is built, tested and installed without the laboratory.
set -euo pipefail
if [ "$ORDO_LAB" != ON ]; then
    echo "skip: this build has no laboratory to leave out"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAIL $*"
    exit 1
}
cmake -S "$ORDO_SOURCE" -B "$work/build" -G Ninja -DORDO_LAB=OFF -DORDO_CUDA=OFF \
    -DCMAKE_C_COMPILER="$CC" -DCMAKE_C_COMPILER_LAUNCHER="$(command -v ccache || true)" >"$work/log" 2>&1 &&
    cmake --build "$work/build" >>"$work/log" 2>&1 || {
    tail -n 40 "$work/log"
    fail "does not build"
}
ctest --test-dir "$work/build" -N | grep -q 'lab/' && fail "tests of the laboratory are there"
ctest --test-dir "$work/build" --no-tests=error --output-on-failure -LE long \
    -R '^(plan/|planner/|api/|cli/|install/|include/)' ||
    fail "tests"
cmake --install "$work/build" --prefix "$work/installed" >"$work/log"
[ -z "$(find "$work/installed" -name '*lab*')" ] ||
    fail "installed: $(find "$work/installed" -name '*lab*')"
"$work/installed/bin/ordo" plan --seq 4k --machine h200 --dtype bf16 --dropout 0.1 >"$work/plan"
grep -q '^predicted' "$work/plan" && fail "a prediction without the laboratory"
grep -q '^line  ' "$work/plan" || fail "no plan"
echo passed
