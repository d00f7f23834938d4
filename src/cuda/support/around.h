/* support/around.h: kernels before and after those of a pass, on its stream.
 *
 * The repair recomputes rows that came out NaN or infinite, over the keys that the mask leaves
 * visible.
 * The products of the passes multiply what the mask hides by zero, and zero times infinity is NaN:
 * so one such number in an input can spoil rows of the same tile that do not see it. A repair
 * follows each pass on its stream. It returns at once unless the pass has raised its flag
 * (ORDO_NOT_FINITE); then it looks for rows with a number that is not finite and computes those
 * again, in f64, over what they see. Which rows, and their bits, depends on nothing but the rows'
 * own inputs and what the pass made of them.
 *
 * Forward passes in f16 also leave rows to it whose logits are too large for P in f16: they make
 * them NaN (ordo_softmax_far()). */
#ifndef CUDA_SUPPORT_AROUND_H
#define CUDA_SUPPORT_AROUND_H

#include "cuda/pass/pages.h"
#include "ordo/status.h"

/* Fill pass->blocks.words, and columns if there are any, with the bits of pass/blocks.h; nothing
 * without a block mask. Run after the table of sequences. */
ordo_status ordo_cuda_tiles(const ordo_cuda_pass *pass);

/* Keys that no query of a pass sees, where the pass carries sums: they have no chain. Launch after
 * the chains, before the repair. Sums that came in but do not go out become dk and dv, sums that go
 * out but did not come in become 0, and others stay: nothing is launched then, nor where it is
 * known that all keys are seen. */
ordo_status ordo_backward_unseen(const ordo_cuda_pass *pass);

/* The gradient of sinks. Launch what writes dsink_parts and dsink, as far as they are wanted, after
 * the other kernels of the pass: it reads delta, and may write to turns. */
ordo_status ordo_cuda_sink(const ordo_cuda_pass *pass);

/* Rows of o, with their lse. `pages`: where k and v are, if not NULL. */
ordo_status ordo_repair_forward(const ordo_cuda_pass *pass, const ordo_cuda_pages *pages);

/* Rows of dq, of dk, of dv. Carried sums: a row that a pass has marked as broken is computed from
 * what came in, which the pass has left in place, over the rows of this pass. */
ordo_status ordo_repair_backward(const ordo_cuda_pass *pass);

#endif
