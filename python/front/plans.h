/* plans.h: the plans that front.c keeps, found by what a call looks like or by their numbers. */
#ifndef ORDO_TORCH_PLANS_H
#define ORDO_TORCH_PLANS_H

#include "tensors.h"

#include <pthread.h>
#include <stdlib.h>

enum { MAX_PLANS = 4096, SLOTS = 2 * MAX_PLANS };

/* Packed or padded sequences; all 0: none, or not what the plan is found by. */
typedef struct sequences {
    int64_t count;         /* of ends, packed, or of lengths */
    int64_t max_q, max_kv; /* packed: the longest */
} sequences;

/* What a plan is found by. Compared as bytes: no padding, zeroed before it is filled. */
typedef struct look_key {
    int64_t rules, drops; /* what Python numbers; whether seed and offset are given or drawn */
    sequences lists;
    shape q, k, v;
    int32_t dtype[3], device_type[3], device[3], unused;
} look_key;

typedef struct kept_plan {
    look_key key;
    const ordo_plan *plan;
    int64_t workspace[2]; /* bytes: forward, backward */
    shape o, lse;
} kept_plan;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kept_plan *plans[MAX_PLANS + 1]; /* by number, from 1; written once */
static int slots[SLOTS];                /* numbers, by hash */
static int plan_count;

static look_key key_of(int64_t rules, bool drops, sequences lists, const view x[3])
{
    look_key made;
    memset(&made, 0, sizeof made);
    made.rules = rules, made.drops = drops, made.lists = lists;
    made.q = x[0].shape, made.k = x[1].shape, made.v = x[2].shape;
    for (int i = 0; i < 3; i++) {
        made.dtype[i] = x[i].dtype;
        made.device_type[i] = x[i].device_type;
        made.device[i] = x[i].device;
    }
    return made;
}

static size_t hash_of(const look_key *key)
{
    uint64_t words[sizeof *key / 8], hash = 0;
    memcpy(words, key, sizeof words);
    for (size_t i = 0; i < sizeof words / 8; i++)
        hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15), hash ^= hash >> 29;
    return (size_t)(hash % SLOTS);
}

/* Number of the plan with this key, or of the free slot for it. Under the lock. */
static int *slot_of(const look_key *key)
{
    size_t at = hash_of(key);
    while (slots[at] && memcmp(&plans[slots[at]]->key, key, sizeof *key) != 0)
        at = (at + 1) % SLOTS;
    return &slots[at];
}

/* The plan of this number; NULL if there is none. */
static const kept_plan *plan_at(int64_t number)
{
    if (number < 1 || number > MAX_PLANS)
        return NULL;
    pthread_mutex_lock(&lock);
    const kept_plan *of = plans[number];
    pthread_mutex_unlock(&lock);
    return of;
}

/* Whether the plan is one for tensors like these. */
static bool serves(const kept_plan *of, bool drops, const view x[3])
{
    const look_key key = key_of(of->key.rules, drops, of->key.lists, x);
    return memcmp(&of->key, &key, sizeof key) == 0;
}

/* The same whatever their strides, which are no part of a plan. */
static bool serves_strided(const kept_plan *of, bool drops, const view x[3])
{
    look_key key = key_of(of->key.rules, drops, of->key.lists, x);
    memcpy(key.q.strides, of->key.q.strides, sizeof key.q.strides);
    memcpy(key.k.strides, of->key.k.strides, sizeof key.k.strides);
    memcpy(key.v.strides, of->key.v.strides, sizeof key.v.strides);
    return memcmp(&of->key, &key, sizeof key) == 0;
}

/* Number of the plan of a call: that with these rules and sequences if `which` is positive, else
 * plan -which. 0 if there is none for tensors like these. */
static int find(int64_t which, bool drops, sequences lists, const view x[3])
{
    if (which < 0) {
        const kept_plan *of = plan_at(-which);
        return of && serves(of, drops, x) ? (int)-which : 0;
    }
    look_key key = key_of(which, drops, lists, x);
    pthread_mutex_lock(&lock);
    int number = *slot_of(&key);
    pthread_mutex_unlock(&lock);
    return number;
}

static int keep(const look_key *key, const kept_plan *of)
{
    pthread_mutex_lock(&lock);
    int *slot = slot_of(key), number = *slot;
    kept_plan *copy = number || plan_count == MAX_PLANS ? NULL : malloc(sizeof *copy);
    if (copy) {
        *copy = *of;
        number = ++plan_count;
        plans[number] = copy;
        *slot = number;
    }
    pthread_mutex_unlock(&lock);
    return number;
}

#endif
