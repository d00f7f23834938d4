/* choose.c: public functions of the I/O model for bounds, words and choices. */
#include "io/choose.h"

#include <inttypes.h>

#include "base/environment.h"
#include "base/status.h"
#include "io/bounds.h"

/* ---- bounds ---- */

/* Key heads are independent: multiply the words of one by their number. */
static ordo_io_bound times(ordo_io_bound bound, int64_t copies)
{
    bound.words *= (double)copies;
    return bound;
}

ordo_status ordo_io_bound_at(const ordo_io_problem *problem, int index, ordo_io_bound *bound)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_io_shape shape;
    ORDO_TRY(ordo_check_pointer("bound", bound));
    ORDO_TRY(ordo_check_range("index", index, 0, ORDO_IO_BOUND_COUNT - 1));
    ORDO_TRY(ordo_io_shape_of(problem, &shape));
    *bound = times(ordo_io_bound_of(&shape, index), shape.copies);
    return ORDO_OK;
}

ordo_status ordo_io_bound_best(const ordo_io_problem *problem, ordo_io_bound *bound)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_io_shape shape;
    ORDO_TRY(ordo_check_pointer("bound", bound));
    ORDO_TRY(ordo_io_shape_of(problem, &shape));
    *bound = times(ordo_io_best_bound(&shape), shape.copies);
    return ORDO_OK;
}

ordo_status ordo_io_sparse_of(const ordo_io_problem *problem, ordo_io_sparse *sparse)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_io_shape s;
    ORDO_TRY(ordo_check_pointer("sparse", sparse));
    ORDO_TRY(ordo_io_shape_of(problem, &s));
    const double d = (double)s.dk, rows = (double)s.rows, live = (double)ordo_io_live_scores(&s);
    const bool gradient = s.pass == ORDO_IO_GRADIENT;
    *sparse = (ordo_io_sparse) { .z_in = (double)ordo_io_least(s.rows, s.cols) * d,
                                 .z_qk = live,
                                 .z_x = gradient ? d * d : 0,
                                 .z_ax = gradient ? rows * d : 0,
                                 .m = (double)s.cache };
    return ORDO_OK;
}

/* ---- words ---- */

static bool has_sizes(const ordo_io_tiles *t)
{
    return t && (t->rows || t->cols || t->out_rows || t->out_keys || t->out_cols);
}

static ordo_status too_small(const ordo_io_shape *shape, ordo_io_algorithm algorithm)
{
    ordo_io_shape roomy = *shape;
    ordo_io_tiles tiles;
    roomy.cache = INT64_MAX / 4;
    if (!ordo_io_best_tiles(&roomy, algorithm, &tiles))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "workspace_words %" PRId64
                         ": %s keeps scores in slow memory and needs more",
                         shape->workspace, ordo_io_algorithm_name(algorithm));
    return ordo_fail(ORDO_ERR_UNSUPPORTED,
                     "cache_words %" PRId64 ": too small for any tile of %s %s", shape->cache,
                     ordo_io_pass_name(shape->pass), ordo_io_algorithm_name(algorithm));
}

static ordo_status choose_one(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                              const ordo_io_tiles *tiles, ordo_io_choice *choice)
{
    if (!ordo_io_has(shape->pass, algorithm))
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "algorithm %s: pass %s has none of that name",
                         ordo_io_algorithm_name(algorithm), ordo_io_pass_name(shape->pass));
    choice->algorithm = algorithm;
    if (has_sizes(tiles)) {
        ORDO_TRY(ordo_io_tiles_of(shape, algorithm, tiles, &choice->tiles));
    } else {
        ordo_io_shape wish = *shape;
        const int64_t per_row = (algorithm == ORDO_IO_PHASE ? 2 : 1) * shape->cols;
        if (tiles && tiles->panel > 0) /* only a panel is given: limit the workspace to it */
            wish.workspace =
                ordo_io_least(shape->workspace, ordo_io_least(tiles->panel, shape->rows) * per_row);
        if (!ordo_io_best_tiles(&wish, algorithm, &choice->tiles))
            return too_small(&wish, algorithm);
    }
    choice->words = ordo_io_words_of(shape, algorithm, &choice->tiles);
    return ORDO_OK;
}

/* The algorithm that moves the fewest words; of equal ones the first. */
static ordo_status choose_best(const ordo_io_shape *shape, ordo_io_choice *choice)
{
    int64_t least = INT64_MAX;
    for (int a = 1; a <= ORDO_IO_ALGORITHM_COUNT; a++) {
        ordo_io_choice one;
        if (!ordo_io_has(shape->pass, (ordo_io_algorithm)a) ||
            !ordo_io_best_tiles(shape, (ordo_io_algorithm)a, &one.tiles))
            continue;
        one.algorithm = (ordo_io_algorithm)a;
        one.words = ordo_io_words_of(shape, one.algorithm, &one.tiles);
        if (one.words.workspace <= shape->workspace && one.words.loads + one.words.stores < least) {
            least = one.words.loads + one.words.stores;
            *choice = one;
        }
    }
    if (least == INT64_MAX)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "cache_words %" PRId64 ": too small for any algorithm of pass %s",
                         shape->cache, ordo_io_pass_name(shape->pass));
    return ORDO_OK;
}

ordo_status ordo_io_decide(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                           const ordo_io_tiles *tiles, ordo_io_choice *choice)
{
    ORDO_TRY(ordo_check_range("algorithm", (int)algorithm, 0, ORDO_IO_ALGORITHM_COUNT));
    if (algorithm == ORDO_IO_BEST && has_sizes(tiles))
        return ordo_fail(ORDO_ERR_ARGUMENT, "tiles: expected none, or an algorithm by name");
    return algorithm == ORDO_IO_BEST ? choose_best(shape, choice)
                                     : choose_one(shape, algorithm, tiles, choice);
}

static ordo_io_words all_heads(ordo_io_words w, int64_t copies)
{
    w.loads *= copies;
    w.stores *= copies;
    return w;
}

ordo_status ordo_io_choose(const ordo_io_problem *problem, ordo_io_algorithm algorithm,
                           const ordo_io_tiles *tiles, ordo_io_choice *choice)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_io_shape shape;
    ORDO_TRY(ordo_check_pointer("choice", choice));
    ORDO_TRY(ordo_io_shape_of(problem, &shape));
    ORDO_TRY(ordo_io_decide(&shape, algorithm, tiles, choice));
    choice->words = all_heads(choice->words, shape.copies);
    return ORDO_OK;
}

ordo_status ordo_io_predict(const ordo_io_problem *problem, ordo_io_algorithm algorithm,
                            const ordo_io_tiles *tiles, ordo_io_words *words)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_io_choice choice;
    ORDO_TRY(ordo_check_pointer("words", words));
    ORDO_TRY(ordo_io_choose(problem, algorithm, tiles, &choice));
    *words = choice.words;
    return ORDO_OK;
}
