/* machine_files.h: the texts of machines/, built into the library.
 *
 * The build writes the definition: tools/embed_machines.cmake. */
#ifndef BASE_MACHINE_FILES_H
#define BASE_MACHINE_FILES_H

typedef struct {
    const char *name; /* file name without ".machine" */
    const char *text;
} ordo_machine_file;

extern const ordo_machine_file ordo_machine_files[]; /* by name; ends with {NULL, NULL} */

#endif
