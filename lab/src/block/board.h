/* board.h: energy and clock of the first board, by NVML, which is loaded on demand. */
#ifndef BLOCK_BOARD_H
#define BLOCK_BOARD_H

/* Since the driver was loaded, and now; negative if nobody says. The clock is the one that NVML
 * reports, which can be above what a power-limited kernel gets. */
double ordo_board_joules(void);
double ordo_board_clock_ghz(void);

#endif
