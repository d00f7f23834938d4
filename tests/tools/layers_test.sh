# tools/check-layers and tools/check-integers accept the sources and catch what breaks them.
. "$ORDO_SOURCE/tests/common.sh"
set -e

"$ORDO_SOURCE/tools/check-layers" "$ORDO_SOURCE" "$ORDO_BUILD" || fail "the sources break their layers"
"$ORDO_SOURCE/tools/check-integers" || fail "src/plan is not integers only"

plant() { # tool, file, line, what must be said
    rm -rf "$work/tree"
    mkdir -p "$work/tree/$(dirname "$2")" "$work/tree/src/plan"
    printf '/* a comment */\n%s\n' "$3" >"$work/tree/$2"
    if said=$("$ORDO_SOURCE/tools/$1" "$work/tree" 2>&1); then
        fail "$1 let pass in $2: $3"
    elif [ "${said#*"$2:2: "*"$4"}" = "$said" ]; then
        fail "$1 said of $2: $said; expected: $4"
    fi
}
allow() { # tool, file, line
    rm -rf "$work/tree"
    mkdir -p "$work/tree/$(dirname "$2")" "$work/tree/src/plan"
    printf '%s\n' "$3" >"$work/tree/$2"
    "$ORDO_SOURCE/tools/$1" "$work/tree" || fail "$1 refused in $2: $3"
}

plant check-layers src/plan/a.c '#include "price/price.h"' 'plan may not include price/price.h'
plant check-layers src/planner/a.c '#include "model/model.h"' 'planner may not include model/model.h'
plant check-layers src/api/a.c '#include "ordo/lab/sim.h"' 'api may not include ordo/lab/sim.h'
plant check-layers include/ordo/a.h '#include "ordo/lab.h"' 'include may not include ordo/lab.h'
plant check-layers lab/src/sim/a.h '#include "model/model.h"' 'sim may not include model/model.h'
plant check-layers lab/src/io/a.h '#include "model/model.h"' 'io may not include model/model.h'
plant check-layers src/base/a.c '#include "plan/plan.h"' 'base may not include plan/plan.h'
plant check-layers src/ref/a.c '#include "plan/plan.h"' 'ref may not include plan/plan.h'
plant check-layers src/cuda/a.cu '  #  include <cpu/cpu.h>' 'cuda may not include cpu/cpu.h'
plant check-layers src/cuda/pass/a.h '#include "cuda/tile/ptx.h"' 'cuda/pass may not include cuda/tile/ptx.h'
plant check-layers src/cuda/ops/a.cu '#include "cuda/sm90/ptx.h"' 'cuda/ops may not include cuda/sm90/ptx.h'
plant check-layers src/cuda/sm90/phases/a.h '#include "cuda/sm90/forward/args.h"' \
    'cuda/sm90/phases may not include cuda/sm90/forward/args.h'
plant check-layers src/api/a.c '#include "cuda/tile/ptx.h"' 'api may not include cuda/tile/ptx.h'
plant check-layers src/emulator/a.c '#include "cuda/module.h"' 'emulator may not include cuda/module.h'
plant check-layers src/cuda/mine/a.cu '#include "base/half.h"' 'cuda/mine may not include base/half.h'
plant check-layers src/planner/a.c '#include "api/api.h"' 'planner may not include api/api.h'
plant check-layers src/plan/a.c '#include "order.h"' 'plan may not include order.h'
plant check-layers src/plan/a.c '#include "base/../model/model.h"' 'plan may not include'
plant check-layers cli/a.c '#include "plan/plan.h"' 'cli may not include plan/plan.h'
plant check-layers cli/kit/a.c '#include "args.h"' 'cli/kit may not include args.h'
plant check-layers cli/kit/a.c '#include "attention/run.h"' 'cli/kit may not include attention/run.h'
plant check-layers cli/attention/plan.c '#include "ordo/lab/model.h"' 'may not include ordo/lab/model.h'
plant check-layers cli/attention/a.c '#include "cli/io.h"' 'cli/attention may not include cli/io.h'
plant check-layers lab/cli/a.c '#include "attention/run.h"' 'lab/cli may not include attention/run.h'
plant check-layers lab/cli/io.c '#include "cli/model.h"' 'may not include cli/model.h of another'
plant check-layers cli/attention/run.c '#include "attention/plan_report.h"' \
    'may not include attention/plan_report.h of another'
plant check-layers examples/a.c '#include "base/half.h"' 'examples may not include base/half.h'
plant check-layers include/ordo/a.h '#include <stdio.h>' 'include may not include stdio.h'
plant check-layers src/api/a.c '#include HEADER' 'neither "quoted" nor <angled>'
allow check-layers src/api/a.c '#include "planner/planner.h"'
allow check-layers src/api/a.c '#include "cuda/module.h"'
allow check-layers src/cuda/sm90/phases/a.h '#include "cuda/sm90/wgmma.h"'
allow check-layers src/cuda/module.cu '#include "cuda/sm90/phases/args.h"'
allow check-layers src/plan/a.c '#include "base/status.h"'
allow check-layers cli/kit/a.c '#include "kit/args.h"'
allow check-layers cli/attention/run.c '#include "kit/args.h"'
allow check-layers cli/attention/run.c '#include "attention/run_report.h"'
allow check-layers include/ordo/a.h '#include <stdint.h>'
allow check-layers lab/include/ordo/lab/a.h '#include "ordo/lab/io.h"'
allow check-layers lab/include/ordo/lab.h '#include "ordo/lab/io.h"'
allow check-layers lab/src/model/a.c '#include "price/price.h"'
allow check-layers lab/src/io/a.c '#include "sim/simulate.h"'
allow check-layers lab/cli/a.c '#include "ordo/lab/model.h"'

# Symbols: a function declared by hand reaches up, or in a circle, where no include shows it.
object() { # source below src or lab/src, its text: compiled as the build does
    mkdir -p "$work/tree/$(dirname "$1")" "$work/tree/build/a.dir/$(dirname "$1")"
    echo "$2" >"$work/tree/$1"
    $CC -c "$work/tree/$1" -o "$work/tree/build/a.dir/$1.o"
}
symbols() { # "" or what must be said
    if said=$("$ORDO_SOURCE/tools/check-layers" "$work/tree" build 2>&1); then
        [ -z "$1" ] || fail "check-layers let pass: $1"
    elif [ -z "$1" ] || [ "${said#*"$1"}" = "$said" ]; then
        fail "check-layers said of symbols: $said; expected: $1"
    fi
}
rm -rf "$work/tree" && mkdir -p "$work/tree/build"
symbols 'no object files'
object src/base/low.c 'int ordo_low(void) { return 1; }'
object src/planner/middle.c 'int ordo_low(void); int ordo_middle(void) { return ordo_low(); }'
object lab/src/model/high.c 'int ordo_middle(void); int ordo_high(void) { return ordo_middle(); }'
symbols ''
object src/api/top.c 'int ordo_name(void) { return 2; }'
object src/planner/middle.c 'int ordo_name(void); int ordo_middle(void) { return ordo_name(); }'
symbols 'src/planner/middle.c: planner may not use ordo_name of src/api/top.c'
object src/planner/middle.c 'int ordo_high(void); int ordo_middle(void) { return ordo_high(); }'
symbols 'src/planner/middle.c: planner may not use ordo_high of lab/src/model/high.c'
object src/planner/middle.c 'int ordo_other(void); int ordo_middle(void) { return ordo_other(); }'
object src/planner/other.c 'int ordo_middle(void); int ordo_other(void) { return ordo_middle(); }'
symbols 'these need one another in a circle'
rm "$work/tree/src/planner/other.c" # its object is left over
symbols ''

plant check-integers src/plan/a.c 'double x;' 'integers only'
plant check-integers src/plan/a.c '*x = (float)y; /* why */' 'integers only'
allow check-integers src/plan/a.c 'int doubled; /* a double
 * is mentioned, float too */ const char *s = "double";'
exit $failed
