/* array.c: what the readers of tensor files share. */
#define _XOPEN_SOURCE 700
#include "kit/array.h"

#include "kit/message.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int cannot(const char *path)
{
    return cli_error(CLI_USAGE, "cannot read %s: %s", path,
                     errno ? strerror(errno) : "the file ends too early");
}

int cli_array_file(const char *path, int64_t *bytes)
{
    struct stat about;
    const int file = open(path, O_RDONLY | O_NONBLOCK); /* a pipe must not hang */
    if (file < 0 || fstat(file, &about) != 0) {
        cannot(path);
    } else if (!S_ISREG(about.st_mode)) {
        cli_error(CLI_USAGE, "cannot read %s: not a regular file", path);
    } else {
        *bytes = about.st_size;
        return file;
    }
    if (file >= 0)
        close(file);
    return -1;
}

bool cli_array_bytes(int file, int64_t offset, void *data, size_t count)
{
    char *to = data;
    while (count > 0) {
        errno = 0;
        const size_t most = count < (size_t)1 << 30 ? count : (size_t)1 << 30;
        const ssize_t got = pread(file, to, most, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        to += got;
        offset += got;
        count -= (size_t)got;
    }
    return true;
}

bool cli_array_size(const int64_t *shape, int dims, int64_t width, int64_t *bytes)
{
    int64_t total = width;
    for (int i = 0; i < dims; i++)
        if (__builtin_mul_overflow(total, shape[i], &total) || total > INT64_C(1) << 62)
            return false;
    *bytes = total;
    return true;
}

int cli_array_read(const cli_array *array, void *data)
{
    int64_t bytes;
    const int file = cli_array_file(array->path, &bytes);
    if (file < 0)
        return CLI_USAGE;
    const bool good = cli_array_bytes(file, array->offset, data, (size_t)array->bytes);
    const int status = good ? CLI_OK : cannot(array->path);
    close(file);
    return status;
}
