/* job.c: check a job and fill in its defaults. */
#include <math.h>

#include "base/keep.h"
#include "base/status.h"
#include "base/versioned.h"
#include "block/block.h"

enum { WIDEST = 1 << 20, LONGEST = 1 << 24, MOST_SEQUENCES = 1 << 16 };

bool ordo_block_has_mode(const ordo_block_job *job, ordo_block_mode mode)
{
    return job->modes >> mode & 1;
}

const char *ordo_block_mode_name(ordo_block_mode mode)
{
    if (mode == ORDO_BLOCK_NONE)
        return "none";
    if (mode == ORDO_BLOCK_OVERLAPPED_QKV)
        return "overlapped-qkv";
    return ordo_dropout_mode_name((ordo_dropout_mode)((int)mode - 1));
}

const char *ordo_block_beside_name(ordo_block_beside beside)
{
    static const char *const names[] = { "default", "qkv", "out", "up", "down", "mlp", "all" };
    const unsigned index = (unsigned)beside;
    return index < sizeof names / sizeof names[0] ? names[index] : "unknown";
}

const char *ordo_block_placement_name(ordo_block_placement placement)
{
    static const char *const names[] = { "stream", "beside" };
    const unsigned index = (unsigned)placement;
    return index < sizeof names / sizeof names[0] ? names[index] : "unknown";
}

/* ---- checks ---- */

static ordo_status check_shape(ordo_block_job *job)
{
    job->batch = job->batch ? job->batch : 1;
    ORDO_TRY(ordo_check_range("batch", job->batch, 1, MOST_SEQUENCES));
    ORDO_TRY(ordo_check_range("seq", job->seq, 1, LONGEST));
    ORDO_TRY(ordo_check_range("embed", job->embed, 1, WIDEST));
    ORDO_TRY(ordo_check_range("heads", job->heads, 1, WIDEST));
    if (job->embed % job->heads != 0)
        return ordo_fail(ORDO_ERR_SHAPE, "heads %" PRId64 ": expected a divisor of embed %" PRId64,
                         job->heads, job->embed);
    job->kv_heads = job->kv_heads ? job->kv_heads : job->heads;
    ORDO_TRY(ordo_check_range("kv_heads", job->kv_heads, 1, job->heads));
    if (job->heads % job->kv_heads != 0)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "kv_heads %" PRId64 ": expected a divisor of heads %" PRId64,
                         job->kv_heads, job->heads);
    job->mlp = job->mlp ? job->mlp : 4 * job->embed;
    ORDO_TRY(ordo_check_range("mlp", job->mlp, 1, 4 * (int64_t)WIDEST));
    const int64_t multiple = job->precision == ORDO_PRECISION_FP8 ? 16 : 8;
    if (job->backend == ORDO_BACKEND_CUDA &&
        (job->embed % multiple != 0 || job->mlp % multiple != 0 ||
         (job->batch * job->seq) % multiple != 0))
        return ordo_fail(ORDO_ERR_SHAPE,
                         "embed %" PRId64 ", mlp %" PRId64 ", batch * seq %" PRId64
                         ": the products of cuda need multiples of %" PRId64,
                         job->embed, job->mlp, job->batch * job->seq, multiple);
    return ORDO_OK;
}

/* Which products the options belong to. */
static ordo_status check_gemm(const ordo_block_job *job)
{
    const bool cublaslt = job->gemm == ORDO_BLOCK_GEMM_CUBLASLT;
    ORDO_TRY(ordo_check_range("gemm", job->gemm, 0, ORDO_BLOCK_GEMM_CUBLASLT));
    if (cublaslt && job->backend == ORDO_BACKEND_CPU)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "gemm cublaslt: backend cpu multiplies by ordo");
    if (!cublaslt && job->precision == ORDO_PRECISION_FP8)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "precision fp8: gemm ordo multiplies bf16; expected cublaslt");
    if (!cublaslt && (job->sm_target != 0 || job->small_tiles))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "sm_target and small_tiles: options of gemm cublaslt; expected 0 and "
                         "false");
    return ordo_check_range("sm_target", job->sm_target, 0, 1 << 16);
}

static ordo_status check_precision(ordo_block_job *job)
{
    if (job->backend == ORDO_BACKEND_DEFAULT)
        job->backend = ORDO_BACKEND_CPU;
    if (job->backend != ORDO_BACKEND_CPU && job->backend != ORDO_BACKEND_CUDA)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "backend %s: expected cpu or cuda",
                         ordo_backend_name(job->backend));
    const bool cuda = job->backend == ORDO_BACKEND_CUDA;
    const bool known = job->precision == ORDO_PRECISION_BF16 ||
                       job->precision == (cuda ? ORDO_PRECISION_FP8 : ORDO_PRECISION_F32);
    static const char *const names[] = { "bf16", "fp8", "f16", "f32" };
    if (!known)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "precision %s: backend %s multiplies %s",
                         (unsigned)job->precision < 4 ? names[job->precision] : "unknown",
                         ordo_backend_name(job->backend), cuda ? "bf16 and fp8" : "bf16 and f32");
    return check_gemm(job);
}

/* Rows of a segment: a multiple of the rows that keep bits are stored by, and of a tile of the
 * backward pass, which carries sums from tile to tile; on cuda of a tile of either pass. */
int64_t ordo_block_segment_rows(const ordo_block_job *job)
{
    const int64_t unit = job->backend == ORDO_BACKEND_CUDA ? 128
                         : job->backward                   ? 64
                                                           : ORDO_KEEP_ROWS;
    const int64_t rows = (job->seq + job->segments - 1) / job->segments;
    return (rows + unit - 1) / unit * unit;
}

static ordo_status resolve_segments(ordo_block_job *job)
{
    job->segments = job->segments ? job->segments : 8;
    ORDO_TRY(ordo_check_range("segments", job->segments, 1, LONGEST));
    const int64_t rows = ordo_block_segment_rows(job);
    job->segments = (job->seq + rows - 1) / rows;
    return ORDO_OK;
}

static ordo_status check_modes(ordo_block_job *job)
{
    const unsigned known = (1u << ORDO_BLOCK_MODES) - 1;
    if (job->modes == 0)
        job->modes = known & ~(1u << ORDO_BLOCK_PIPELINED);
    if (job->modes & ~known)
        return ordo_fail(ORDO_ERR_ARGUMENT, "modes %#x: expected bits of %#x", job->modes, known);
    if (job->dropout == 0)
        job->modes &= 1u << ORDO_BLOCK_NONE;
    if (job->modes == 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "dropout 0: a dropout mode other than none needs a "
                                            "probability between 0 and 1");
    const bool pipelined = ordo_block_has_mode(job, ORDO_BLOCK_PIPELINED);
    if (job->segments != 0 && !pipelined)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "segments %" PRId64 ": only dropout mode pipelined has segments",
                         job->segments);
    if (pipelined && job->gemm == ORDO_BLOCK_GEMM_CUBLASLT)
        return ordo_fail(
            ORDO_ERR_UNSUPPORTED,
            "dropout mode pipelined: bits of gemm cublaslt may depend on how many rows "
            "are multiplied at once; expected ordo");
    if (pipelined)
        ORDO_TRY(resolve_segments(job));
    return ordo_check_range("beside", job->beside, 0, ORDO_BLOCK_BESIDE_ALL);
}

bool ordo_block_is_experiment(const ordo_block_job *job)
{
    return job->generator == ORDO_GENERATOR_COMPARE || job->rounds < 7;
}

/* Kernels that make bits of experiments inside are few. */
static ordo_status check_inside(const ordo_block_job *job)
{
    const bool compare = job->generator == ORDO_GENERATOR_COMPARE;
    if (!ordo_block_has_mode(job, ORDO_BLOCK_FUSED) || job->dropout == 0 ||
        job->backend != ORDO_BACKEND_CUDA || !ordo_block_is_experiment(job))
        return ORDO_OK;
    if (job->embed / job->heads != 128 || (!compare && job->bits != 8))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "dropout mode fused: on cuda bits of %s with %d rounds are made inside at "
                         "head size 128%s; head size %" PRId64 ", bits %d",
                         compare ? "compare" : "sliced", job->rounds, compare ? "" : " with 8 bits",
                         job->embed / job->heads, job->bits);
    return ORDO_OK;
}

static ordo_status check_generator(ordo_block_job *job)
{
    const bool compare = job->generator == ORDO_GENERATOR_COMPARE;
    if (!(job->dropout >= 0 && job->dropout < 1))
        return ordo_fail(ORDO_ERR_ARGUMENT, "dropout %g: expected 0 or more and less than 1",
                         job->dropout);
    job->rounds = job->rounds ? job->rounds : 7;
    job->bits = job->bits ? job->bits : compare ? 32 : 8;
    if (job->rounds != 3 && job->rounds != 5 && job->rounds != 7 && job->rounds != 10)
        return ordo_fail(ORDO_ERR_ARGUMENT, "rounds %d: expected 7 or 10; or 3 or 5, experiments",
                         job->rounds);
    if (job->generator != ORDO_GENERATOR_SLICED && !compare)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "generator %d: expected sliced or compare",
                         (int)job->generator);
    if (compare && job->bits != 32)
        return ordo_fail(ORDO_ERR_ARGUMENT, "bits %d: generator compare draws 32", job->bits);
    if (!compare)
        ORDO_TRY(ordo_check_range("bits", job->bits, 1, 16));
    ORDO_TRY(check_inside(job));
    if (ordo_block_has_mode(job, ORDO_BLOCK_PIPELINED) && compare)
        return ordo_fail(
            ORDO_ERR_UNSUPPORTED,
            "dropout mode pipelined: the bits of a segment are of generator sliced, not "
            "of compare");
    return ORDO_OK;
}

static ordo_status check_placement(const ordo_block_job *job)
{
    const char *name = ordo_block_placement_name(job->placement);
    ORDO_TRY(ordo_check_range("placement", job->placement, 0, ORDO_BLOCK_PLACEMENT_BESIDE));
    if (job->placement == ORDO_BLOCK_PLACEMENT_STREAM)
        return ORDO_OK;
    if (job->backend != ORDO_BACKEND_CUDA)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "placement %s: only backend cuda has it", name);
    if (job->gemm == ORDO_BLOCK_GEMM_CUBLASLT)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "placement %s: kernels of gemm cublaslt leave no room; expected ordo",
                         name);
    if (ordo_block_has_mode(job, ORDO_BLOCK_PIPELINED))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "placement %s: dropout mode pipelined has placement stream only", name);
    if (job->generator != ORDO_GENERATOR_COMPARE && job->bits != 8)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "placement %s: bits %d; expected 8", name,
                         job->bits);
    return ORDO_OK;
}

/* ---- what follows from a job ---- */

/* The generator `compare` and experiments with rounds only replace the bits: the plan knows the
 * nearest problem that it can describe. */
ordo_problem ordo_block_problem(const ordo_block_job *job, bool drops)
{
    ordo_problem problem = ORDO_PROBLEM_INIT;
    problem.dtype = job->precision == ORDO_PRECISION_F32 ? ORDO_F32 : ORDO_BF16;
    problem.batch = job->batch;
    problem.heads = job->heads;
    problem.kv_heads = job->kv_heads;
    problem.q_len = job->seq;
    problem.head_dim = job->embed / job->heads;
    problem.mask = job->causal ? ORDO_MASK_CAUSAL : ORDO_MASK_FULL;
    if (drops) {
        problem.dropout.p = job->dropout;
        problem.dropout.rounds = job->rounds == 10 ? 10 : 7;
        problem.dropout.bits = job->generator == ORDO_GENERATOR_COMPARE ? 16 : job->bits;
    }
    return problem;
}

ordo_problem ordo_block_segment(const ordo_block_job *job, int64_t segment, bool backward)
{
    const int64_t rows = ordo_block_segment_rows(job), first = segment * rows;
    ordo_problem problem = ordo_block_problem(job, true);
    problem.q_len = first + rows < job->seq ? rows : job->seq - first;
    problem.kv_len = job->causal && !backward ? first + problem.q_len : job->seq;
    problem.shard.row0 = first;
    problem.shard.q_total = problem.shard.kv_total = job->seq;
    return problem;
}

ordo_dropout_call ordo_block_drop_call(const ordo_block_job *job)
{
    ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
    call.seed = job->seed;
    call.offset = job->offset;
    call.experiment_rounds = job->rounds < 7 ? job->rounds : 0;
    call.visible_only = 1; /* no pass needs the bits of tiles that a causal mask hides */
    return call;
}

bool ordo_block_needs_bits(const ordo_block_job *job)
{
    return ordo_block_has_mode(job, ORDO_BLOCK_SEQUENTIAL) ||
           ordo_block_has_mode(job, ORDO_BLOCK_OVERLAPPED) ||
           ordo_block_has_mode(job, ORDO_BLOCK_OVERLAPPED_QKV);
}

static ordo_status check_segment_bits(const ordo_block_job *job)
{
    const ordo_dropout_call call = ordo_block_drop_call(job);
    ordo_dropout_info info;
    if (!ordo_block_has_mode(job, ORDO_BLOCK_PIPELINED))
        return ORDO_OK;
    const ordo_problem segment = ordo_block_segment(job, 0, true);
    ORDO_TRY(ordo_dropout_query(&segment, &call, &info));
    if (job->limit_keep_bits && job->keep_bits_bytes < info.bytes)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "keep_bits_bytes %" PRIu64 ": dropout mode pipelined in %" PRId64
                         " segments keeps %" PRIu64 " bytes of bits; expected at least that, or "
                         "more segments",
                         job->keep_bits_bytes, job->segments, info.bytes);
    return ORDO_OK;
}

/* The memory for bits, and where overlapped bits are made. */
static ordo_status check_bits(ordo_block_job *job)
{
    const ordo_problem problem = ordo_block_problem(job, true);
    const ordo_dropout_call call = ordo_block_drop_call(job);
    ordo_dropout_info info;
    if (job->dropout == 0)
        return ORDO_OK;
    ORDO_TRY(ordo_dropout_query(&problem, &call, &info));
    const bool room_for_two = !job->limit_keep_bits || job->keep_bits_bytes / 2 >= info.bytes;
    if (job->beside == ORDO_BLOCK_BESIDE_DEFAULT)
        job->beside = room_for_two ? ORDO_BLOCK_BESIDE_ALL : ORDO_BLOCK_BESIDE_QKV;
    const bool two =
        ordo_block_has_mode(job, ORDO_BLOCK_OVERLAPPED) && job->beside != ORDO_BLOCK_BESIDE_QKV;
    const uint64_t least = (two ? 2 : 1) * info.bytes;
    if (ordo_block_needs_bits(job) && job->limit_keep_bits && job->keep_bits_bytes < least)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "keep_bits_bytes %" PRIu64 ": dropout mode %s%s%s keeps %" PRIu64
                         " bytes of bits; expected at least that, or mode fused, which keeps none",
                         job->keep_bits_bytes, two ? "overlapped" : "sequential or overlapped",
                         two ? " beside " : "", two ? ordo_block_beside_name(job->beside) : "",
                         least);
    return check_segment_bits(job);
}

ordo_status ordo_block_job_resolve(const ordo_block_job *in, ordo_block_job *out)
{
    static const ordo_struct kind =
        ORDO_STRUCT(ordo_block_job, "block job", ORDO_BLOCK_JOB_INIT, NULL);
    ORDO_TRY(ordo_versioned_copy(out, in, &kind));
    ORDO_TRY(check_precision(out));
    ORDO_TRY(check_shape(out));
    ORDO_TRY(check_modes(out));
    ORDO_TRY(check_generator(out));
    ORDO_TRY(check_placement(out));
    ORDO_TRY(ordo_check_range("threads", out->threads, 0, 1024));
    return check_bits(out);
}
