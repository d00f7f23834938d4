/* versioned.h: argument structs that begin with their own size.
 *
 * A program and a library of different versions meet here. A smaller struct comes from an older
 * program: the fields it lacks are zero, which is their default. A larger one comes from a newer
 * program: it is accepted if the part that this library does not know is zero. */
#ifndef BASE_VERSIONED_H
#define BASE_VERSIONED_H

#include "base/for_lab.h"
#include "ordo/status.h"

/* A field that is a struct itself. Every version of the outer struct has all of it or none; other
 * fields lie within 8 bytes, so that no size that is a multiple of 8 ends within them. */
typedef struct ordo_nested {
    const char *name;
    size_t begin, end;
} ordo_nested;

#define ORDO_NESTED(type, field)                                                                   \
    {                                                                                              \
#field, offsetof(type, field), offsetof(type, field) + sizeof(((type *)0)->field)          \
    }

/* An argument struct as this library knows it. */
typedef struct ordo_struct {
    const char *name, *init;   /* for messages: "call", "ORDO_CALL_INIT" */
    size_t size;               /* sizeof the struct */
    const ordo_nested *nested; /* its nested fields and a zeroed one; NULL if it has none */
} ordo_struct;

#define ORDO_STRUCT(type, name, init, nested)                                                      \
    {                                                                                              \
        name, #init, sizeof(type), nested                                                          \
    }

/* Copy the caller's struct `from` to `to`, which has the size that this library knows, and set the
 * size there. Returns ORDO_ERR_ARGUMENT if the size of `from` is none that a version of the struct
 * can have, ORDO_ERR_UNSUPPORTED if it holds what this library does not know. */
ORDO_FOR_LAB ordo_status ordo_versioned_copy(void *to, const void *from, const ordo_struct *kind);

/* The other way: write `from`, which has the size that this library knows, to the caller's struct
 * `to`. No byte beyond the size of `to` is written, and what it has beyond `from` becomes zero. */
ordo_status ordo_versioned_answer(void *to, const void *from, const ordo_struct *kind);

#endif
