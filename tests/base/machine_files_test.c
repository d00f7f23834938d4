/* machine_files_test.c: the library holds machines/ byte for byte, sorted by name. */
#include "base/machine_files.h"
#include "check.h"

TEST(every_file_is_there_byte_for_byte)
{
    const char *source = getenv("ORDO_SOURCE");
    if (!source)
        SKIP("ORDO_SOURCE is not set");
    for (const ordo_machine_file *m = ordo_machine_files; m->name; m++) {
        static char path[4096], text[1 << 16];
        snprintf(path, sizeof path, "%s/machines/%s.machine", source, m->name);
        FILE *file = fopen(path, "rb");
        CHECK(file != NULL);
        if (!file)
            continue;
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        CHECK_TEXT(m->text, text);
    }
}

TEST(names_are_sorted)
{
    CHECK(ordo_machine_files[0].name != NULL);
    for (const ordo_machine_file *m = ordo_machine_files; m[0].name && m[1].name; m++)
        CHECK(strcmp(m[0].name, m[1].name) < 0);
}

CHECK_MAIN()
