/* constants.h: numbers of more than one backend; in double, rounded to float where they are used.
 */
#ifndef BASE_CONSTANTS_H
#define BASE_CONSTANTS_H

#define ORDO_LOG2_E 1.4426950408889634 /* exp(x) = exp2(ORDO_LOG2_E x) */
#define ORDO_LN_2   0.6931471805599453

#endif
