/* sm90_tiles.h: the tiles of the CUDA kernels for compute capability 9.0, by the head size that
 * they are compiled for (64, 128 or 256).
 *
 * The only statement of these sizes: the planner's table, from which workspaces are computed, and
 * the kernels both read it. A change is a change of bits. Constant expressions in C and C++. */
#ifndef PLAN_SM90_TILES_H
#define PLAN_SM90_TILES_H

#define ORDO_SM90_PICK(head_dim, of_64, of_128, of_256)                                            \
    ((head_dim) == 64 ? (of_64) : (head_dim) == 128 ? (of_128) : (of_256))

/* Queries and keys of a tile of the forward pass, and of the backward pass, at head size
 *                                                          64   128  256 */
#define ORDO_SM90_FORWARD_Q(head_dim)  ORDO_SM90_PICK(head_dim, 192, 128, 128)
#define ORDO_SM90_FORWARD_K(head_dim)  ORDO_SM90_PICK(head_dim, 128, 128, 64)
#define ORDO_SM90_BACKWARD_Q(head_dim) ORDO_SM90_PICK(head_dim, 128, 64, 64)
#define ORDO_SM90_BACKWARD_K(head_dim) ORDO_SM90_PICK(head_dim, 128, 128, 64)

#endif
