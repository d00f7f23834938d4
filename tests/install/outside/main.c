/* Uses ordo from outside: the library at hand is the one of the header, and it answers. */
#include <ordo/ordo.h>
#include <stdio.h>

int main(void)
{
    const ordo_build build = ordo_build_query();
    ordo_problem problem = ORDO_PROBLEM_INIT;
    problem.batch = problem.heads = 1;
    problem.q_len = problem.head_dim = 64;
    const ordo_status good = ordo_problem_check(&problem);
    problem.heads = -1;
    const ordo_status bad = ordo_problem_check(&problem);
    printf("ordo %s: %s; %s\n", build.version, ordo_status_name(good), ordo_last_error());
    return build.major != ORDO_VERSION_MAJOR || good != ORDO_OK || bad == ORDO_OK;
}
