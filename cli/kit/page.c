/* page.c: the beginning of an HTML page, and text in which nothing is markup. */
#include "kit/page.h"

void cli_page_start(FILE *out, const char *title, const char *style)
{
    fprintf(out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
            "<title>%s</title>\n<style>\n"
            ":root{color-scheme:light dark;--ink:#222;--paper:#fff;--soft:#666;--line:#d5d8dc}\n"
            "@media(prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#15181c;--soft:#999;"
            "--line:#3a4048}}\n"
            "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);"
            "max-width:1180px;margin:2rem auto;padding:0 1rem}\n"
            "h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}p{max-width:46rem}\n"
            "table{border-collapse:collapse;font-variant-numeric:tabular-nums}\n"
            "th,td{padding:.3rem .8rem;border-bottom:1px solid var(--line);text-align:right}\n"
            "th:first-child,td:first-child,td.text{text-align:left}th{color:var(--soft);"
            "font-weight:500}\ntr.best td{font-weight:600}\n"
            ".chart{overflow-x:auto}.soft{color:var(--soft)}\n%s</style>\n</head>\n<body>\n",
            title, style);
}

void cli_page_escape(FILE *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        default: putc(*text, out);
        }
}
