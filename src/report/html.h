/* Text and tables in HTML and SVG. This is the one place where text is escaped: whatever does not
 * stand in these sources as a literal (names, paths, settings, what files say) goes out through
 * weft__html_text or one of its relatives. */
#ifndef WEFT_REPORT_HTML_H
#define WEFT_REPORT_HTML_H

#include <stddef.h>
#include <stdio.h>

/* For the content of elements and for attributes in double quotes. Control characters, and bytes
 * that are not UTF-8, come out as U+FFFD. NULL is nothing. */
void weft__html_text(FILE *out, const char *text);
void weft__html_bytes(FILE *out, const char *bytes, size_t count);

/* At most `most` characters, the last of them an ellipsis if there are more. */
void weft__html_cut(FILE *out, const char *text, int most);

/* How many characters `text` has. */
int weft__html_length(const char *text);

/* A table that scripts can sort. A column whose name begins with '#' holds numbers: it is aligned
 * to the right, and the '#' is not shown. */
void weft__html_table(FILE *out, const char *const *columns, int count);
void weft__html_row(FILE *out);
void weft__html_row_end(FILE *out);
void weft__html_cell(FILE *out, const char *text);

/* A number as it is shown, and as it is sorted by. NaN is an empty cell. */
void weft__html_number(FILE *out, double value, const char *shown);
void weft__html_table_end(FILE *out);

#endif
