/* page.h: what HTML pages and SVG pictures of the command share. */
#ifndef CLI_PAGE_H
#define CLI_PAGE_H

#include <stdio.h>

/* The beginning of an HTML page, up to <body>; `style` is CSS in addition to the common rules. */
void cli_page_start(FILE *out, const char *title, const char *style);

void cli_page_escape(FILE *out, const char *text); /* for XML and HTML */

#endif
