# Write OUTPUT, a C file that holds the lines of REGISTRY (tests/data/digests/keys.txt) of CUDA
# families, whose names begin with "sm": what `ordo scan` knows the digests of.
file(STRINGS ${REGISTRY} lines REGEX "^sm[0-9]+\\.")
set(table "")
foreach(line IN LISTS lines)
    string(APPEND table "    \"${line}\",\n")
endforeach()
file(WRITE ${OUTPUT} "/* Generated from the registry of keys by tools/embed_registry.cmake. */\n"
    "#include \"attention/scan.h\"\n\n#include <stddef.h>\n\n"
    "const char *const cli_scan_registry[] = {\n${table}    NULL,\n};\n")
