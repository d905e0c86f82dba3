/* The page around the plots: one file that needs nothing else. Readable without scripts; the script
 * adds values under the pointer and tables that can be sorted. Light or dark as the reader's system
 * is; light on paper. */
#ifndef WEFT_REPORT_PAGE_H
#define WEFT_REPORT_PAGE_H

#include <stdio.h>

extern const char weft__page_style[];  /* CSS; page_style.c */
extern const char weft__page_script[]; /* JavaScript; page_script.c */

/* All up to the first section. `made` is a line below the title. */
void weft__page_open(FILE *out, const char *title, const char *made);
void weft__page_close(FILE *out);

/* A section, to which the page's contents lead by `id`. */
void weft__section_open(FILE *out, const char *id, const char *title);
void weft__section_close(FILE *out);

/* Figures beside each other, as many as fit; tiles likewise. */
void weft__grid_open(FILE *out);
void weft__grid_close(FILE *out);

/* A number that is seen first, within weft__tiles_open and weft__tiles_close. */
void weft__tiles_open(FILE *out);
void weft__tile(FILE *out, const char *value, const char *name);
void weft__tiles_close(FILE *out);

/* Something to be known: what was left out, or found. */
void weft__note(FILE *out, const char *text);

/* Folded until it is asked for. */
void weft__details_open(FILE *out, const char *title);
void weft__details_close(FILE *out);

#endif
