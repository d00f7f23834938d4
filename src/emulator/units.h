/* units.h: the units of a pass, each computed from the inputs alone. Their results do not depend on
 * one another, so that any thread may take any of them. */
#ifndef EMULATOR_UNITS_H
#define EMULATOR_UNITS_H

#include "emulator/pass.h"

enum {
    ORDO_EMULATOR_ROWS = 64, /* rows of a forward unit */
    ORDO_EMULATOR_BLOCKS = 4 /* forward units that share a walk, at most */
};

/* ---- forward: `count` units of 64 rows from `row` on ---- */

void ordo_emulator_forward_unit(const ordo_emulator_pass *pass, int64_t b, int64_t head,
                                int32_t row, int count, void *memory);
size_t ordo_emulator_forward_bytes(const ordo_emulator_pass *pass);
int64_t ordo_emulator_forward_scores(const ordo_emulator_pass *pass, int64_t b, int64_t head,
                                     int32_t row);

/* ---- backward ---- */

/* dS of one key head of one sequence, from its units of keys to its units of queries: tiles (query
 * head of the group, query tile, key tile), each of rows x keys. data NULL: none, the units of
 * queries compute it again. */
typedef struct ordo_emulator_ds {
    uint16_t *data;
    int64_t nq, nk;
} ordo_emulator_ds;

/* dk and dv of key tile j of a key head. */
void ordo_emulator_key_unit(const ordo_emulator_pass *pass, int64_t b, int64_t kv_head, int32_t j,
                            const ordo_emulator_ds *ds, void *memory);

/* dq of query tile i of a query head. */
void ordo_emulator_query_unit(const ordo_emulator_pass *pass, int64_t b, int64_t head, int32_t i,
                              const ordo_emulator_ds *ds, void *memory);

/* dbias of the rows of query tile i of one matrix. */
void ordo_emulator_bias_unit(const ordo_emulator_pass *pass, int64_t sequence, int64_t head,
                             int32_t i, void *memory);

size_t ordo_emulator_backward_bytes(const ordo_emulator_pass *pass);
int64_t ordo_emulator_key_scores(const ordo_emulator_pass *pass, int64_t b, int64_t kv_head,
                                 int32_t j);
int64_t ordo_emulator_query_scores(const ordo_emulator_pass *pass, int64_t b, int64_t head,
                                   int32_t i);
int64_t ordo_emulator_bias_scores(const ordo_emulator_pass *pass, int32_t i); /* at most */

#endif
