# tools/check-layers and tools/check-integers accept the sources and catch what breaks them.
set -eu
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
failed=0
fail() {
    echo "FAIL $*"
    failed=1
}

"$ORDO_SOURCE/tools/check-layers" || fail "the sources break their layers"
"$ORDO_SOURCE/tools/check-integers" || fail "src/plan is not integers only"

plant() { # tool, file, line, what must be said
    rm -rf "$copy/tree"
    mkdir -p "$copy/tree/$(dirname "$2")" "$copy/tree/src/plan"
    printf '/* a comment */\n%s\n' "$3" >"$copy/tree/$2"
    if said=$("$ORDO_SOURCE/tools/$1" "$copy/tree" 2>&1); then
        fail "$1 let pass in $2: $3"
    elif [ "${said#*"$2:2: "*"$4"}" = "$said" ]; then
        fail "$1 said of $2: $said; expected: $4"
    fi
}
allow() { # tool, file, line
    rm -rf "$copy/tree"
    mkdir -p "$copy/tree/$(dirname "$2")" "$copy/tree/src/plan"
    printf '%s\n' "$3" >"$copy/tree/$2"
    "$ORDO_SOURCE/tools/$1" "$copy/tree" || fail "$1 refused in $2: $3"
}

plant check-layers src/plan/a.c '#include "planner/price.h"' 'plan may not include planner/price.h'
plant check-layers src/planner/a.c '#include "model/model.h"' 'planner may not include model/model.h'
plant check-layers src/api/a.c '#include "ordo/lab/sim.h"' 'api may not include ordo/lab/sim.h'
plant check-layers include/ordo/a.h '#include "ordo/lab.h"' 'include may not include ordo/lab.h'
plant check-layers lab/sim/a.h '#include "model/model.h"' 'sim may not include model/model.h'
plant check-layers lab/io/a.h '#include "planner/price.h"' 'io may not include planner/price.h'
plant check-layers src/base/a.c '#include "plan/plan.h"' 'base may not include plan/plan.h'
plant check-layers src/ref/a.c '#include "plan/plan.h"' 'ref may not include plan/plan.h'
plant check-layers src/cuda/a.cu '  #  include <cpu/cpu.h>' 'cuda may not include cpu/cpu.h'
plant check-layers src/planner/a.c '#include "api/api.h"' 'planner may not include api/api.h'
plant check-layers src/plan/a.c '#include "order.h"' 'plan may not include order.h'
plant check-layers src/plan/a.c '#include "base/../model/model.h"' 'plan may not include'
plant check-layers cli/a.c '#include "plan/plan.h"' 'cli may not include plan/plan.h'
plant check-layers cli/kit/a.c '#include "args.h"' 'cli/kit may not include args.h'
plant check-layers cli/kit/a.c '#include "attention/run.h"' 'cli/kit may not include attention/run.h'
plant check-layers cli/attention/a.c '#include "lab/io.h"' 'cli/attention may not include lab/io.h'
plant check-layers cli/lab/a.c '#include "attention/run.h"' 'cli/lab may not include attention/run.h'
plant check-layers cli/attention/run.c '#include "attention/plan_report.h"' \
    'may not include attention/plan_report.h of another'
plant check-layers examples/a.c '#include "base/half.h"' 'examples may not include base/half.h'
plant check-layers include/ordo/a.h '#include <stdio.h>' 'include may not include stdio.h'
plant check-layers src/api/a.c '#include HEADER' 'neither "quoted" nor <angled>'
allow check-layers src/api/a.c '#include "planner/planner.h"'
allow check-layers src/plan/a.c '#include "base/status.h"'
allow check-layers cli/kit/a.c '#include "kit/args.h"'
allow check-layers cli/attention/run.c '#include "kit/args.h"'
allow check-layers cli/attention/run.c '#include "attention/run_report.h"'
allow check-layers include/ordo/a.h '#include <stdint.h>'
allow check-layers include/ordo/lab/a.h '#include "ordo/lab/io.h"'
allow check-layers include/ordo/lab.h '#include "ordo/lab/io.h"'
allow check-layers lab/model/a.c '#include "planner/price.h"'
allow check-layers cli/lab/a.c '#include "ordo/lab/model.h"'

plant check-integers src/plan/a.c 'double x;' 'integers only'
plant check-integers src/plan/a.c '*x = (float)y; /* why */' 'integers only'
allow check-integers src/plan/a.c 'int doubled; /* a double
 * is mentioned, float too */ const char *s = "double";'
exit $failed
