# tools/racecheck sorts a report into classes, and fails on one that its table does not explain.
. "$ORDO_SOURCE/tests/common.sh" python3
racecheck() {
    PYTHONDONTWRITEBYTECODE=1 "$ORDO_SOURCE/tools/racecheck" --offsets --report "$work/report" \
        --table "$work/table" "$@" >"$work/out" 2>&1
}

cat >"$work/table" <<'END'
[[explained]]
kernel = "^forward_kernel$"
between = ['^Write .*0x40', '^Read .*0x80']
why = "a barrier"
END
head='========= COMPUTE-SANITIZER
========= Error: Race reported between Read access at _Z14forward_kernelILi64EEv4args+0x80
=========     and Write access at _Z14forward_kernelILi64EEv4args+0x40 [12 hazards]'
tail='========= 
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)'

printf '%s\n' "$head" "$tail" >"$work/report"
racecheck || fail "an explained class"
grep -q '^explained forward_kernel: 1 pairs, 12 hazards' "$work/out" || fail "no line of the class"

printf '%s\n' "$head" \
    '=========     and Write access at _Z14forward_kernelILi64EEv4args+0x50 [1 hazards]' \
    "$tail" >"$work/report"
racecheck && fail "a class that is not explained"
grep -q '1 passed, 1 failed' "$work/out" || fail "counts of one explained and one not"

printf '%s\n' "${head//forward/backwrd}" "$tail" >"$work/report"
racecheck && fail "the same accesses of another kernel"

# Reports that cannot be read whole are no success.
printf '%s\n' "$head" >"$work/report"
racecheck && fail "no summary"
printf '%s\n' "$head" "${tail/1 hazard/2 hazards}" >"$work/report"
racecheck && fail "fewer reports than the summary has"
printf '%s\n' "${head/Read access at/Something at}" "$tail" >"$work/report"
racecheck && fail "words that are not known"
printf '%s\n' "$head" '========= Error: Out of memory' "$tail" >"$work/report"
racecheck && fail "an error of the detector"

printf '%s\n' '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)' >"$work/report"
racecheck || fail "a clean report"
exit $failed
