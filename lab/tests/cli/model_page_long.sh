# The report of `ordo model` in a real browser: it draws, it computes nothing, it asks nobody.
. "$ORDO_SOURCE/tests/cli/common.sh"
browser=$(command -v chromium || command -v chromium-browser) || {
    echo "skipped: no chromium"
    exit 77
}

view() { # arguments of the browser...
    timeout 1200 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" \
        --virtual-time-budget=2000 "$@" 2>"$err"
}

status 0 model report --seq 8k --embed 4k --causal --html "$work/page.html"
view --dump-dom "file://$work/page.html" >"$work/dom" || fail "the browser failed"
grep -q 'id="recommended"' "$work/dom" || fail "no recommendation in the page as parsed"
[ "$(grep -c '<figure' "$work/dom")" -ge 9 ] || fail "fewer than nine kernels with limiters"
[ "$(grep -o '<rect' "$work/dom" | wc -l)" -ge 150 ] || fail "bars or cells are missing"
[ "$(grep -o '</svg>' "$work/dom" | wc -l)" -eq 11 ] || fail "expected nine bars and two maps"
grep -q '<parsererror' "$work/dom" && fail "the browser could not parse it"
view --window-size=1200,2600 --screenshot="$work/page.png" "file://$work/page.html" >/dev/null
[ "$(wc -c <"$work/page.png")" -gt 50000 ] || fail "the picture is empty"

for figure in 5 6 8 9 11 12 13 14 cost speedup; do
    status 0 model grid --figure $figure --svg "$work/figure.svg"
    view --dump-dom "file://$work/figure.svg" >"$work/dom" || fail "figure $figure: the browser failed"
    grep -q '<parsererror' "$work/dom" && fail "figure $figure: not XML"
    [ "$(grep -c 'class="cell"' "$work/dom")" -ge 42 ] || fail "figure $figure: cells are missing"
done
finish
