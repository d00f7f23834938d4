/* compare_html.c: a self-contained page: the verdict, the loss of both runs, and where they differ.
 */
#include "record/compare.h"

#include "kit/page.h"

#include <inttypes.h>

static void write_files(FILE *out, const cli_comparison *c)
{
    const int64_t steps[2] = { c->info.steps_a, c->info.steps_b };
    fputs("<table>\n<tr><th>run</th><th>file</th><th>recorded steps</th></tr>\n", out);
    for (int i = 0; i < 2; i++) {
        fprintf(out, "<tr><td class=\"%c\">%c</td><td class=\"text\">", 'a' + i, 'A' + i);
        cli_page_escape(out, c->path[i]);
        fprintf(out, "</td><td>%" PRId64 "</td></tr>\n", steps[i]);
    }
    fputs("</table>\n", out);
}

bool cli_compare_html(FILE *out, const cli_comparison *c)
{
    cli_page_start(
        out, "ordo compare",
        "pre{white-space:pre-wrap;border-left:4px solid var(--line);padding:.5rem 1rem}\n"
        "td.a{color:#4e79a7}td.b{color:#f28e2b}\n"
        "svg text{font:12px system-ui,sans-serif;fill:currentColor}\n"
        ".grid{stroke:var(--line);fill:none}.curve{fill:none;stroke-width:2}\n"
        ".a{stroke:#4e79a7}.b{stroke:#f28e2b;stroke-dasharray:5 4}\n"
        "td.a,td.b{stroke:none}\n"
        ".same{fill:#59a14f;fill-opacity:.25}.g{fill:#f28e2b}.w{fill:#4e79a7}"
        ".gw{fill:#d6453d}\n");
    fprintf(out, "<h1>Two recorded runs: %s</h1>\n<pre>", c->info.equal ? "equal" : "DIFFERENT");
    cli_page_escape(out, c->info.text);
    fputs("</pre>\n", out);
    write_files(out, c);
    fputs("<h2>Loss</h2>\n<div class=\"chart\">\n", out);
    cli_compare_curves(out, c);
    fputs("</div>\n<h2>Layers and steps</h2>\n"
          "<p>Rows are layers in backward order: the last layer is at the top. Green: everything "
          "recorded is equal. Blue: weights differ; orange: gradients differ; red: both.</p>\n"
          "<div class=\"chart\">\n",
          out);
    if (!cli_compare_map(out, c))
        return false;
    fprintf(out, "</div>\n<p class=\"soft\">Made by ordo %s.</p>\n</body>\n</html>\n",
            ordo_build_query().version);
    return true;
}
