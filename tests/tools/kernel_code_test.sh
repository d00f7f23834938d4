# tools/kernel-code tells equal, moved, changed, new and missing kernels of two builds apart.
. "$ORDO_SOURCE/tests/common.sh" python3

# A build with one object of the kernels NAME=REGISTERS:WORD,WORD... of sm_90; a word is the first
# half of an instruction.
build() { # folder, kernels...
    mkdir -p "$work/$1/src/cuda"
    echo "x.o: $work/x.cu " >"$work/$1/src/cuda/x.cu.o.d"
    touch "$work/x.cu"
    python3 - "$work/$1/src/cuda/x.cu.o" "${@:2}" <<'END'
import struct, sys

kernels = [(n, int(r), [int(w, 16) for w in c.split(",")])
           for n, r, c in (k.replace("=", ":").split(":") for k in sys.argv[2:])]
strings = b"\0" + b"".join(n.encode() + b"\0" for n, _, _ in kernels)
symbols, info, parts = bytes(24), b"", []
for i, (name, registers, words) in enumerate(kernels):
    symbols += struct.pack("<IBBHQQ", strings.index(name.encode() + b"\0"), 0, 0, 0, 0, 0)
    info += struct.pack("<BBHII", 4, 0x2F, 8, i + 1, registers)
    parts.append((f".text.{name}", b"".join(struct.pack("<QQ", w, 0) for w in words)))
parts = [("", b""), (".strtab", strings), (".symtab", symbols), (".nv.info", info)] + parts
names = b"".join(n.encode() + b"\0" for n, _ in parts) + b".shstrtab\0"
parts.append((".shstrtab", names))
body, headers = b"", b""
for name, data in parts:
    headers += struct.pack("<IIQQQQIIQQ", names.index(name.encode() + b"\0"), 1, 0, 0,
                           64 + len(body), len(data), 0, 0, 1, 0)
    body += data
elf = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 1, 190, 1, 0, 0, 64 + len(body),
                  90 << 8, 64, 0, 0, 64, len(parts), len(parts) - 1) + body + headers
with open(sys.argv[1], "wb") as file:
    file.write(b"before" + elf + b"Cuda compilation tools, release 1.2, V1.2.3")
END
}
run() { # build, options...: prints what differs, then the exit status
    "$ORDO_SOURCE/tools/kernel-code" --build "$work/$1" "${@:2}"
    echo "status $?"
}

build old one=40:123,1abc,29f0 two=50:777,778
"$ORDO_SOURCE/tools/kernel-code" --build "$work/old" >"$work/table" || fail "a list"
grep -q '^sm_90 40 3 1 .* one$' "$work/table" || fail "registers, instructions, matrix: $(cat "$work/table")"
expect() { # name, expected text of a comparison, kernels...
    build "$1" "${@:3}"
    got=$(run "$1" --compare "$work/table")
    [ "$got" = "$2" ] || fail "$1: $got"
}
expect same "2 same, 0 moved, 0 changed, 0 new, 0 gone
status 0" two=50:777,778 renamed=40:123,1abc,29f0
expect moved "moved    sm_90 one, 40 -> 41 registers
1 same, 1 moved, 0 changed, 0 new, 0 gone
status 1" one=41:5123,2abc,39f0 two=50:777,778
[ "$(run moved --compare "$work/table" --moved | tail -n 1)" = "status 0" ] || fail "--moved"
expect changed "changed  sm_90 two, 50 -> 52 registers, 2 -> 1 instructions, 0 -> 0 matrix instructions
1 same, 0 moved, 1 changed, 0 new, 0 gone
status 1" one=40:123,1abc,29f0 two=52:779
build other one=40:123,1abc,29f0 three=50:555
[ "$(run other --compare "$work/table" | sed 's/ sm_90.* / /')" = "new      three
gone     two
1 same, 0 moved, 0 changed, 1 new, 1 gone
status 1" ] || fail "other: $(run other --compare "$work/table")"
# Without a table of its release, or without objects, it skips; objects of no source do not count.
[ "$(run old --compare | tail -n 1)" = "status 77" ] || fail "another release of nvcc"
rm "$work/x.cu"
[ "$(run old --compare "$work/table" | tail -n 1)" = "status 77" ] || fail "left over objects"
exit $failed
