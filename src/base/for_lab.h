/* for_lab.h: marks what libordo_lab uses of libordo in addition to the public API.
 *
 * Such names are exported but are no part of the API: no public header declares them, and they may
 * change with every version. docs/adr/0034-the-laboratory-is-a-library.md says why. */
#ifndef BASE_FOR_LAB_H
#define BASE_FOR_LAB_H

#ifndef ORDO_FOR_LAB /* empty in a build without the laboratory */
#define ORDO_FOR_LAB __attribute__((visibility("default")))
#endif

#endif
