/* sm90/gemm/args.h: arguments of the GEMM kernels, the order of their tiles, and what an instance
 * is. */
#ifndef CUDA_SM90_GEMM_ARGS_H
#define CUDA_SM90_GEMM_ARGS_H

#include <cuda.h>
#include <cuda_runtime.h>

#include "cuda/pass/gemm.h"
#include "ordo/status.h"

/* What becomes of a sum of products, and where: pass/gemm.h. */
typedef struct ordo_gemm_end {
    char *c;
    int64_t c_bytes;  /* from a row to the next */
    int64_t sections; /* bytes from a section to the next */
    const void *bias;
    int32_t m, n;
    ordo_dtype out;
    bool add;
} ordo_gemm_end;

typedef struct ordo_gemm_args {
    CUtensorMap a, b, c; /* c: if rows of C are halves, and whole 16 bytes */
    ordo_gemm_end end;
    int32_t a_bytes;              /* bytes of A that a stage receives */
    int32_t stages;               /* stages per unit of work */
    int32_t units, rows, columns; /* all; tiles of a cluster, down and across */
    int32_t group;                /* how many of the `rows` are taken together */
    const float *scale;           /* e4m3: of every sum; or NULL */
} ordo_gemm_args;

/* A unit of work of a cluster: a tile of a section. */
typedef struct ordo_gemm_place {
    int32_t row, column, section;
} ordo_gemm_place;

/* Tiles that are computed at the same time share rows of A and columns of B in L2: `group` tiles
 * down, then the next column. */
ORDO_HD ordo_gemm_place ordo_gemm_issue(const ordo_gemm_args *args, int32_t unit)
{
    const int32_t tiles = args->rows * args->columns, tile = unit % tiles;
    const int32_t groups = args->group * args->columns, first = tile / groups * args->group;
    const int32_t left = args->rows - first, size = left < args->group ? left : args->group;
    const int32_t in_group = tile % groups;
    ordo_gemm_place place = { first + in_group % size, in_group / size, unit / tiles };
    return place;
}

/* A kernel and its launch parameters. */
typedef struct ordo_gemm_instance {
    const void *kernel;           /* NULL: there is none of these transpositions */
    int32_t rows, columns, depth; /* size of a block's tile; k per stage */
    int32_t cluster;              /* blocks, whose tiles lie one below the other and share B */
    unsigned threads, shared_bytes;
} ordo_gemm_instance;

#endif
