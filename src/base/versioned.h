/* versioned.h: argument structs that begin with their own size.
 *
 * A program and a library of different versions meet here. A smaller struct comes from an
 * older program: the fields it lacks are zero, which is their default. A larger one comes
 * from a newer program: it is accepted if the part this library does not know is zero. */
#ifndef BASE_VERSIONED_H
#define BASE_VERSIONED_H

#include "base/for_lab.h"
#include "ordo/status.h"

/* Copy the struct at `from`, whose first member is a size_t, into the `known` bytes at `to`,
 * and set the size there to `known`. `what` and `init` name the type and its initialiser.
 * ORDO_ERR_ARGUMENT if the size is none that a version of the struct can have. */
ORDO_FOR_LAB ordo_status ordo_versioned_copy(void *to, size_t known, const void *from,
                                             const char *what, const char *init);

/* A field of an argument struct that is a struct itself. Only within such a field can a size that
 * is a multiple of 8 end; all others lie within 8 bytes. */
typedef struct ordo_nested {
    const char *init, *field; /* the outer struct's initialiser, and the field */
    size_t begin, end;
} ordo_nested;

#define ORDO_NESTED(init, type, field)                                                             \
    {                                                                                              \
#init, #field, offsetof(type, field), offsetof(type, field) + sizeof(((type *)0)->field)   \
    }

/* ordo_versioned_copy() of a struct of libordo_lab with one nested field; libordo's own are known
 * here. */
ORDO_FOR_LAB ordo_status ordo_versioned_copy_nested(void *to, size_t known, const void *from,
                                                    const char *what, const ordo_nested *nested);

/* The other way: write the `known` bytes at `from` to the caller's struct `to`, no more of it than
 * its size says; what it has beyond them becomes zero. Its size stays. */
ordo_status ordo_versioned_answer(void *to, size_t known, const void *from, const char *what,
                                  const char *init);

#endif
