#!/usr/bin/env python3
"""Write src/text/unicode_table.h: which code points are letters and numbers, in the version of Unicode
that the `tokenizers` package uses, by asking it. Needs: pip install tokenizers."""
import os

from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

BATCH = 4096


def matched(pattern):
    """The code points that match; between two of them stands one that matches nothing."""
    split = Split(Regex(pattern), "isolated")
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    found = []
    for i in range(0, len(points), BATCH):
        batch = points[i:i + BATCH]
        pieces = split.pre_tokenize_str("\x01" + "\x01".join(map(chr, batch)) + "\x01")
        alone = {a for _, (a, b) in pieces if b - a == 1 and a % 2 == 1}
        found += [c for k, c in enumerate(batch) if 2 * k + 1 in alone]
    return found


def runs(points):
    """Gap, run, gap, run, ...: how many code points are out, then in, then out again."""
    out, at, i = [], 0, 0
    while i < len(points):
        j = i
        while j + 1 < len(points) and points[j + 1] == points[j] + 1:
            j += 1
        out += [points[i] - at, j - i + 1]
        at, i = points[j] + 1, j + 1
    assert max(out) < 0x10000
    return out


def table(name, values):
    lines, line = [], "   "
    for value in values:
        if len(line) + len(f" {value},") > 100:
            lines.append(line)
            line = "   "
        line += f" {value},"
    lines.append(line)
    return f"static const uint16_t {name}[] = {{\n" + "\n".join(lines) + "\n};\n"


here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "../../src/text/unicode_table.h"), "w") as out:
    out.write("""/* Written by test/text/make_unicode.py; Unicode 16. From U+0000 on: how many code points are
 * not in the class, then how many are, then are not, and so on. */
#ifndef WEFT_TRAIN_UNICODE_TABLE_H
#define WEFT_TRAIN_UNICODE_TABLE_H

#include <stdint.h>

/* clang-format off */
/* General category L: letters. */
""" + table("letter_runs", runs(matched(r"\p{L}"))) + """
/* General category N: numbers. */
""" + table("number_runs", runs(matched(r"\p{N}"))) + """/* clang-format on */

#endif
""")
