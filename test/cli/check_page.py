"""check_page.py FILE: is it well-formed HTML that asks nobody for anything? Says what is wrong, else how many plots it has.

check_page.py --pixels PICTURE BOXES LEAST: does each box (x,y,width,height;...) of the picture, a PNG, have that many
pixels that are neither grey nor nearly so?"""

import html.parser
import re
import struct
import sys
import zlib

VOID = {"meta", "link", "br", "hr", "img", "input"}
EMPTY = {"path", "rect", "circle", "line"}  # of SVG: <path .../>


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.wrong, self.ids, self.links, self.plots, self.scripts = [], [], set(), set(), 0, 0

    def complain(self, text):
        self.wrong.append("line %d: %s" % (self.getpos()[0], text))

    def look(self, tag, attributes):
        names = [name for name, _ in attributes]
        if len(names) != len(set(names)):
            self.complain("an attribute twice in <%s>" % tag)
        for name, value in attributes:
            if name == "id":
                if value in self.ids:
                    self.complain("the id %s twice" % value)
                self.ids.add(value)
            if name in ("src", "href", "data", "action", "srcset", "poster") and tag != "rect":
                if value.startswith("#"):
                    self.links.add(value[1:])
                elif not value.startswith("data:"):
                    self.complain("<%s %s=%s> leads out of the page" % (tag, name, value))
            if name.startswith("on"):
                self.complain("a script in the attribute %s" % name)
        self.plots += tag == "svg" and ("role", "img") in attributes
        self.scripts += tag == "script"

    def handle_starttag(self, tag, attributes):
        self.look(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.look(tag, attributes)
        if tag not in EMPTY:
            self.complain("<%s/> is closed in a way that HTML does not know" % tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.complain("</%s> ends nothing that is open" % tag)

    def handle_comment(self, data):
        self.complain("a comment: %s" % data[:40])


def check(path):
    text = open(path, "rb").read().decode("utf-8")  # raises if it is none
    page = Page()
    page.feed(text)
    page.close()
    wrong = page.wrong
    if not text.startswith("<!DOCTYPE html>\n"):
        wrong.append("no doctype")
    if page.open:
        wrong.append("still open: %s" % page.open)
    if page.scripts != 1:
        wrong.append("%d scripts" % page.scripts)
    if page.links - page.ids:
        wrong.append("links to what is not there: %s" % (page.links - page.ids))
    if re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text):
        wrong.append("control characters")
    for word in ("@import", "url(", "fetch(", "XMLHttpRequest", "WebSocket", "sendBeacon", "import("):
        if word in re.sub("<(td|title|code)>.*?</", "", text):
            wrong.append("%s in it" % word)
    print("\n".join(wrong) if wrong else "plots: %d" % page.plots)
    return bool(wrong)


def undo(kind, row, before, step):
    """One row of a PNG, without its filter."""
    if kind == 1:
        for i in range(step, len(row)):
            row[i] = (row[i] + row[i - step]) & 255
    elif kind == 2:
        for i in range(len(row)):
            row[i] = (row[i] + before[i]) & 255
    elif kind == 3:
        for i in range(len(row)):
            row[i] = (row[i] + ((row[i - step] if i >= step else 0) + before[i]) // 2) & 255
    elif kind == 4:
        for i in range(len(row)):
            a, b = row[i - step] if i >= step else 0, before[i]
            c = before[i - step] if i >= step else 0
            p, q, r = abs(b - c), abs(a - c), abs(a + b - 2 * c)
            row[i] = (row[i] + (a if p <= q and p <= r else b if q <= r else c)) & 255
    return row


def read_png(path):
    data, at, packed = open(path, "rb").read(), 8, b""
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack(">IIBB", body[:10])
        packed += body if kind == b"IDAT" else b""
        at += 12 + size
    step = {2: 3, 6: 4}[color]
    raw, rows, before = zlib.decompress(packed), [], bytearray(width * step)
    for y in range(height):
        start = y * (width * step + 1)
        before = undo(raw[start], bytearray(raw[start + 1 : start + 1 + width * step]), before, step)
        rows.append(before)
    return rows, step


def pixels(path, boxes, least):
    rows, step = read_png(path)
    blank = 0
    for box in boxes.split(";"):
        x, y, width, height = [int(float(word)) for word in box.split(",")]
        colored = 0
        for row in rows[y : y + height]:
            part = row[x * step : (x + width) * step]
            for i in range(0, len(part) - step + 1, step):
                colored += max(part[i : i + 3]) - min(part[i : i + 3]) > 40
        if colored < least:
            print("the plot at %s has %d colored pixels" % (box, colored))
            blank += 1
    print("boxes: %d" % len(boxes.split(";")))
    return blank > 0


if sys.argv[1] == "--pixels":
    sys.exit(pixels(sys.argv[2], sys.argv[3], int(sys.argv[4])))
sys.exit(check(sys.argv[1]))
