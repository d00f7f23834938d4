// The same from C++17.
#include <ordo/ordo.h>

int main()
{
    ordo_problem problem = ORDO_PROBLEM_INIT;
    problem.batch = problem.heads = 1;
    problem.q_len = problem.head_dim = 64;
    return ordo_build_query().major != ORDO_VERSION_MAJOR ||
           ordo_problem_check(&problem) != ORDO_OK;
}
