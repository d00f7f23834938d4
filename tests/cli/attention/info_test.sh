# ordo info: the build, the machines, the backends; and machine files.
. "$ORDO_SOURCE/tests/cli/common.sh"

status 0 info
for word in ordo host workers machines backends ref cpu cuda; do
    prints "$word"
done
json info
said=$(ORDO_CUDA_MODULE=/nowhere/module.so "$ORDO" info | grep -c /nowhere/module.so)
[ "$said" = 1 ] || fail "the reason why there is no module is said $said times"
for name in version host machines backends cuda; do
    [ -n "$(field "$name")" ] || fail "no field $name"
done
for machine in $("$ORDO" info | sed -n 's/^machines *//p'); do
    json info --machine "$machine"
    grep -qE '"key": "(workers|matrix_buffer_bytes)"' "$out" || fail "$machine: no workers, no buffer"
done
refuses 2 "nosuch" info --machine nosuch
refuses 2 "" info --machine "$work/no.machine"
printf 'nonsense\n' >"$work/bad.machine"
refuses 2 "bad.machine:1" info --machine "$work/bad.machine"
finish
