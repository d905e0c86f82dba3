/* What is around every drawing. */
#include "report/draw.h"
#include "report/html.h"
#include "report/plot.h"

void weft__figure_open(FILE *out, const char *title, const char *note)
{
    fputs("<figure><figcaption><b>", out);
    weft__html_text(out, title);
    fputs("</b>", out);
    if (note != NULL && note[0] != '\0') {
        fputs(" <span>", out);
        weft__html_text(out, note);
        fputs("</span>", out);
    }
    fputs("</figcaption>\n", out);
}

void weft__figure_close(FILE *out)
{
    fputs("</figure>\n", out);
}

void weft__legend_open(FILE *out)
{
    fputs("<div class=\"legend\">", out);
}

void weft__legend_entry(FILE *out, const weft_legend_entry_t *entry)
{
    int color = entry->color % WEFT_PLOT_COLORS;
    fputs("<span><svg class=\"key\" viewBox=\"0 0 24 12\" aria-hidden=\"true\">", out);
    if (entry->line) {
        fprintf(out, "<path class=\"l c%d%s\" d=\"M1 6H23\"/>", color, entry->dashed ? " d" : "");
    }
    if (entry->marker) {
        fprintf(out, "<path class=\"f c%d\" d=\"", color);
        weft__draw_marker(out, color, 12, 6);
        fputs("\"/>", out);
    }
    if (!entry->line && !entry->marker) {
        fprintf(out, "<path class=\"f c%d\" d=\"M5 0h14v12h-14z\"/>", color);
    }
    fputs("</svg>", out);
    weft__html_text(out, entry->name);
    fputs("</span> ", out);
}

void weft__legend_close(FILE *out)
{
    fputs("</div>\n", out);
}
