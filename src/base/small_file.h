/* small_file.h: the first bytes of a file of /proc or /sys, as text. */
#ifndef BASE_SMALL_FILE_H
#define BASE_SMALL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Read `root` followed by `path` into `text`, NUL-terminated, without its last newline; what
 * does not fit is left. False, and "", if there is no such file or it is empty. */
static inline bool ordo_small_file(char *text, size_t capacity, const char *root, const char *path)
{
    char full[512];
    text[0] = '\0';
    const int length = snprintf(full, sizeof full, "%s%s", root, path);
    if (length < 0 || (size_t)length >= sizeof full)
        return false;
    FILE *file = fopen(full, "rb");
    if (file == NULL)
        return false;
    size_t read = fread(text, 1, capacity - 1, file);
    fclose(file);
    if (read > 0 && text[read - 1] == '\n')
        read--;
    text[read] = '\0';
    return strlen(text) > 0;
}

#endif
