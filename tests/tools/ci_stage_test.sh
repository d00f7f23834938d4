# .ci/stage counts what ran, and is not content with nothing.
set -u
failed=0
unset ORDO_CI_ALLOW_SKIP ORDO_SAMPLE

# counts STATUS RESULT COMMAND: the exit status and the numbers of a stage that runs a shell command.
counts() {
    said=$("$ORDO_SOURCE/.ci/stage" 600 bash -c "$3" 2>&1)
    status=$?
    result=$(echo "$said" | sed -nE '$s/.*: ([0-9]+ passed, [0-9]+ failed, [0-9]+ skipped), exit .*/\1/p')
    if [ "$status" != "$1" ] || [ "$result" != "$2" ]; then
        echo "FAIL $3: exit status $status, $result; expected $1, $2"
        failed=1
    fi
}
ctest=' 1/3 Test #1: base/a ....   Passed    0.01 sec
 2/3 Test #12: cuda/b ....***Skipped   0.01 sec
 3/3 Test #3: cpu/c ....'
counts 0 "1 passed, 0 failed, 1 skipped" "echo '$ctest   Passed    1.00 sec' | head -2"
counts 1 "1 passed, 1 failed, 1 skipped" "echo '$ctest***Failed    1.00 sec'; exit 8"
counts 0 "2 passed, 0 failed, 1 skipped" "echo 'tests/python/test_a.py::test_b PASSED [ 50%]
tests/python/test_a.py::test_c SKIPPED (no GPU)
ok   lint/format'"
counts 1 "2 passed, 1 failed, 0 skipped" "echo 'ok   mutate/a: killed by plan/order, 3 s
FAIL mutate/b: survived, 2 s
ok   fuzz/json: 9 inputs in 1 s'; exit 1"

# A failure beside the tests, a limit, nothing at all, and what was left out.
counts 1 "1 passed, 1 failed, 0 skipped" "echo 'ok   lint/format'; exit 1"
counts 1 "0 passed, 1 failed, 0 skipped" "true"
counts 1 "0 passed, 1 failed, 1 skipped" "echo 'tests/python/test_a.py::test_c SKIPPED (no PyTorch)'"
counts 1 "0 passed, 1 failed, 0 skipped" "echo 'skip python: PyTorch and transformers cannot be had here'"
counts 1 "1 passed, 1 failed, 0 skipped" "echo 'ok   lint/format'; echo 'skip fuzz: no clang'"
ORDO_CI_ALLOW_SKIP=1 counts 0 "0 passed, 0 failed, 1 skipped" "echo 'skip python: no PyTorch'"
ORDO_CI_ALLOW_SKIP=1 counts 1 "0 passed, 1 failed, 0 skipped" "false"
"$ORDO_SOURCE/.ci/stage" 1 bash -c "echo 'ok   lint/format'; sleep 9" >/dev/null && failed=1

# .ci/run adds the stages up: with a make that passes everywhere, and one that runs no test once.
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir "$tree/tools" "$tree/bin"
cp -r "$ORDO_SOURCE/.ci" "$tree"
printf '#!/bin/sh\n' >"$tree/tools/setup"
printf '#!/bin/sh\necho "ok   readme: true"\n' >"$tree/tools/readme-commands"
printf '#!/bin/sh\n[ "$1" = "$EMPTY" ] || echo "ok   lint/$1"\n' >"$tree/bin/make"
chmod +x "$tree"/*/*
for empty in '' test test-tsan python-torch-test; do
    said=$(EMPTY=$empty PATH=$tree/bin:$PATH "$tree/.ci/run" 2>&1)
    status=$?
    stages=$(grep -vc '^#' "$tree/.ci/stages")
    bad=0
    [ -z "$empty" ] || bad=1
    expected="$((stages - bad)) passed, $bad failed, 0 skipped"
    if [ "$(echo "$said" | tail -n 1)" != "$expected" ] || [ "$status" != $bad ]; then
        echo "FAIL .ci/run with make $empty empty: exit status $status, $(echo "$said" | tail -n 1)"
        failed=1
    fi
done

# A stage may take twice what it usually takes, and all of them together 85 minutes.
awk -F'|' '!/^#/ && (NF != 4 || $1 < 2 * $2) { print "FAIL .ci/stages: " $0; bad = 1 } !/^#/ { sum += $1 }
    END { if (sum > 5100 || sum == 0) { print "FAIL .ci/stages: limits of " sum " s"; bad = 1 } exit bad }' \
    "$ORDO_SOURCE/.ci/stages" || failed=1

# What is drawn: each name once in N days, the same ones on a day, and all without a day.
seven=$(seq 7 | "$ORDO_SOURCE/tools/sample" 3 | wc -l)
once=$(for day in 20000 20001 20002; do seq 7 | ORDO_SAMPLE=$day "$ORDO_SOURCE/tools/sample" 3; done | sort | tr '\n' ' ')
if [ "$seven" != 7 ] || [ "$once" != "1 2 3 4 5 6 7 " ]; then
    echo "FAIL tools/sample: $seven of 7 without a day; in three days: $once"
    failed=1
fi
for wrong in 0 x ''; do
    "$ORDO_SOURCE/tools/sample" "$wrong" </dev/null 2>/dev/null && failed=1
done

# No test run accepts that there are no tests.
grep -n 'no-tests=ignore' "$ORDO_SOURCE/Makefile" && failed=1
grep 'ctest --preset' "$ORDO_SOURCE/Makefile" | grep -v 'no-tests=error' && failed=1
exit $failed
