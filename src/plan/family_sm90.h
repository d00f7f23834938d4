/* family_sm90.h: the tiles of the kernels for compute capability 9.0, by the head size that they
 * are compiled for (64, 128, 256, or up to 576).
 *
 * The only statement of these sizes: the family's struct (plan/family.c), from which workspaces are
 * computed, and the kernels both read it. A change is a change of bits. Constant expressions in C
 * and C++. */
#ifndef PLAN_FAMILY_SM90_H
#define PLAN_FAMILY_SM90_H

/* clang-format off */
enum { /*     head size 64                       128                               256 */
    ORDO_SM90_FORWARD_Q_64 = 192,  ORDO_SM90_FORWARD_Q_128 = 128,  ORDO_SM90_FORWARD_Q_256 = 128,
    ORDO_SM90_FORWARD_K_64 = 128,  ORDO_SM90_FORWARD_K_128 = 128,  ORDO_SM90_FORWARD_K_256 = 64,
    ORDO_SM90_BACKWARD_Q_64 = 128, ORDO_SM90_BACKWARD_Q_128 = 64,  ORDO_SM90_BACKWARD_Q_256 = 128,
    ORDO_SM90_BACKWARD_K_64 = 128, ORDO_SM90_BACKWARD_K_128 = 128, ORDO_SM90_BACKWARD_K_256 = 256,
    /*        576: by phases */
    ORDO_SM90_FORWARD_Q_576 = 128,  ORDO_SM90_FORWARD_K_576 = 256,
    ORDO_SM90_BACKWARD_Q_576 = 128, ORDO_SM90_BACKWARD_K_576 = 256
};
/* clang-format on */

/* Shared memory of one block, in bytes. */
enum { ORDO_SM90_SHARED = 232448 };

#define ORDO_SM90_PICK(what, head_dim)                                                             \
    ((head_dim) == 64    ? ORDO_SM90_##what##_64                                                   \
     : (head_dim) == 128 ? ORDO_SM90_##what##_128                                                  \
     : (head_dim) <= 256 ? ORDO_SM90_##what##_256                                                  \
                         : ORDO_SM90_##what##_576)

/* Queries and keys of a tile of the forward pass, and of the backward pass. */
#define ORDO_SM90_FORWARD_Q(head_dim)  ORDO_SM90_PICK(FORWARD_Q, head_dim)
#define ORDO_SM90_FORWARD_K(head_dim)  ORDO_SM90_PICK(FORWARD_K, head_dim)
#define ORDO_SM90_BACKWARD_Q(head_dim) ORDO_SM90_PICK(BACKWARD_Q, head_dim)
#define ORDO_SM90_BACKWARD_K(head_dim) ORDO_SM90_PICK(BACKWARD_K, head_dim)

#endif
