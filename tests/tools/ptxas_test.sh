# tools/check-ptxas refuses what ptxas complains of, and takes the object back.
. "$ORDO_SOURCE/tests/common.sh"
set -e
check=$ORDO_SOURCE/tools/check-ptxas
object=$work/kernel.o

# A compiler that says what it is told to, and leaves an object.
cat >"$work/compiler" <<'COMPILER'
#!/bin/sh
: >"$1"
printf '%s\n' "ptxas info    : Compiling entry function 'kernel' for '${TARGET:-sm_90a}'" \
    "ptxas info    : Function properties for kernel" "$2" >&2
exit "$3"
COMPILER
chmod +x "$work/compiler"
none='    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads'

refuse() { # what ptxas says, what must be said
    if said=$("$check" "$object" "$work/compiler" "$object" "$1" 0 2>&1); then
        fail "let pass: $1"
    elif [ "${said#*"$2"}" = "$said" ]; then
        fail "said: $said; expected: $2"
    elif [ -e "$object" ]; then
        fail "the object stayed after: $1"
    fi
}
allow() { # what ptxas says, what must be said
    if ! said=$("$check" "$object" "$work/compiler" "$object" "$1" 0 2>&1) || [ ! -e "$object" ]; then
        fail "refused: $1"
    elif [ "$said" != "$2" ]; then
        fail "said: $said; expected: $2"
    fi
}

refuse '    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads' 'kernel: 8 bytes stack'
refuse '    0 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads' '4 bytes spill stores'
refuse '    0 bytes stack frame, 0 bytes spill stores, 4 bytes spill loads' '4 bytes spill loads'
for code in 08 09 10 11 12 13 14 15 16 17 18 19; do
    refuse "ptxas info    : (C75$code) Potential Performance Loss: in 'kernel'" "(C75$code)"
done
refuse 'ptxas warning : (C7510) Potential Performance Loss' '(C7510)'
allow "$none" ''
allow 'ptxas info    : Used 168 registers, used 16 barriers' ''
TARGET=sm_80 allow '    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads' ''
allow 'kernel.cu(1): warning: something else' 'kernel.cu(1): warning: something else'

spills='    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads'
if ! said=$("$check" --slow "$object" "$work/compiler" "$object" "$spills" 0 2>&1) || [ ! -e "$object" ]; then
    fail "--slow refused: $spills"
elif [ "${said#*"8 bytes stack"}" = "$said" ]; then
    fail "--slow said: $said"
fi

status=0
"$check" "$object" "$work/compiler" "$object" "$none" 3 >/dev/null 2>&1 || status=$?
[ "$status" -eq 3 ] || fail "the compiler ended with 3, the check with $status"
[ ! -e "$object" ] || fail "the object of a compiler that failed stayed"
if "$check" "$object" true >/dev/null 2>&1; then
    fail "let pass: a compiler that says nothing"
fi

# The real one, where it is: each kernel of this file must be named.
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [ -x "$nvcc" ]; then
    cat >"$work/slow.cu" <<'KERNELS'
#include "cuda/sm90/wgmma.h"
__global__ void __launch_bounds__(384) no_register_count(float *x)
{
    if (threadIdx.x < 128) {
        registers_down<24>();
        return;
    }
    registers_up<240>();
    x[threadIdx.x] = 1.0f;
}
__global__ void __launch_bounds__(128, 1) serialised(float *x, int n)
{
    float d[32];
    for (int i = 0; i < 32; i++)
        d[i] = 0.0f;
    for (int j = 0; j < n; j++) {
        wgmma_fence();
        if (j & 1)
            wgmma_ss<false, 0, 0>(d, 1, 2, 1);
        wgmma_commit();
        d[3] += 1.0f;
        wgmma_wait<0>();
    }
    for (int i = 0; i < 32; i++)
        x[threadIdx.x * 32 + i] = d[i];
}
__global__ void __launch_bounds__(1024, 2) spills(const float *x, float *y)
{
    float d[64];
#pragma unroll
    for (int i = 0; i < 64; i++)
        d[i] = x[threadIdx.x + 1024 * i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 64; i++)
        y[threadIdx.x + 1024 * i] = d[63 - i] * d[i];
}
KERNELS
    if said=$("$check" "$object" "$nvcc" -std=c++17 -gencode=arch=compute_90a,code=sm_90a \
        -I"$ORDO_SOURCE/include" -I"$ORDO_SOURCE/src" -c "$work/slow.cu" -o "$object" 2>&1); then
        fail "let pass: slow.cu"
    fi
    for word in '(C7508)' serialised spills; do
        [ "${said#*"$word"}" != "$said" ] || fail "no word of $word in: $said"
    done
fi
exit $failed
