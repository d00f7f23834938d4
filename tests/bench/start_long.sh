#!/bin/bash
# Every benchmark of the CPU starts: it ends well, or is still at work after a second.
set -u
failed=0
for source in $(find "$ORDO_SOURCE/bench" -name "*.c"); do
    name=$(basename "$source" .c)
    said=$(timeout -k 600 1 "$ORDO_BUILD/bench/$name" 2>&1 </dev/null)
    status=$?
    if [ $status != 0 ] && [ $status != 124 ]; then
        echo "bench/$name: exit $status: $(printf '%s' "$said" | tail -1)"
        failed=1
    fi
done
exit $failed
