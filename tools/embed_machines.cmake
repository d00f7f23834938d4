# Write OUTPUT, a C file that holds every MACHINES/*.machine, sorted by name.
#
# Bytes are written as character constants: no limit on the length of a literal applies, and
# nothing in a file needs escaping.
file(GLOB files ${MACHINES}/*.machine) # sorted
set(arrays "")
set(table "")
set(index 0)
foreach(file IN LISTS files)
    cmake_path(GET file STEM LAST_ONLY name)
    file(READ ${file} hex HEX)
    string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${hex}")
    string(REGEX REPLACE "0a'," "0a',\n    " bytes "${bytes}") # one line per line
    string(APPEND arrays "/* ${name}.machine */\nstatic const char text_${index}[] = {\n"
        "    ${bytes}0};\n\n")
    string(APPEND table "    {\"${name}\", text_${index}},\n")
    math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUTPUT} "/* Generated from machines/ by tools/embed_machines.cmake. */\n"
    "#include \"base/machine_files.h\"\n\n#include <stddef.h>\n\n"
    "${arrays}const ordo_machine_file ordo_machine_files[] = {\n${table}    {NULL, NULL},\n};\n")
