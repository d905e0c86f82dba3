#include "report/page.h"

#include "report/html.h"

void weft__page_open(FILE *out, const char *title, const char *made)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n"
          "<link rel=\"icon\" href=\"data:,\">\n<title>",
          out); /* the icon: a browser would ask a server for one */
    weft__html_text(out, title);
    fputs("</title>\n<style>\n", out);
    fputs(weft__page_style, out);
    fputs("</style>\n</head>\n<body>\n<header><h1>", out);
    weft__html_text(out, title);
    fputs("</h1><p>", out);
    weft__html_text(out, made);
    fputs("</p></header>\n", out);
}

void weft__page_close(FILE *out)
{
    fputs("<div id=\"tip\" role=\"status\" hidden></div>\n<script>\n", out);
    fputs(weft__page_script, out);
    fputs("</script>\n</body>\n</html>\n", out);
}

void weft__section_open(FILE *out, const char *id, const char *title)
{
    fprintf(out, "<section id=\"%s\"><h2>", id);
    weft__html_text(out, title);
    fputs("</h2>\n", out);
}

void weft__section_close(FILE *out)
{
    fputs("</section>\n", out);
}

void weft__grid_open(FILE *out)
{
    fputs("<div class=\"grid\">\n", out);
}

void weft__grid_close(FILE *out)
{
    fputs("</div>\n", out);
}

void weft__tiles_open(FILE *out)
{
    fputs("<div class=\"tiles\">\n", out);
}

void weft__tile(FILE *out, const char *value, const char *name)
{
    fputs("<div class=\"tile\"><b>", out);
    weft__html_text(out, value);
    fputs("</b><span>", out);
    weft__html_text(out, name);
    fputs("</span></div>\n", out);
}

void weft__tiles_close(FILE *out)
{
    fputs("</div>\n", out);
}

void weft__note(FILE *out, const char *text)
{
    fputs("<p class=\"note\">", out);
    weft__html_text(out, text);
    fputs("</p>\n", out);
}

void weft__details_open(FILE *out, const char *title)
{
    fputs("<details><summary>", out);
    weft__html_text(out, title);
    fputs("</summary>\n", out);
}

void weft__details_close(FILE *out)
{
    fputs("</details>\n", out);
}
