/* Text in HTML: whatever comes from elsewhere is text, and nothing but text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/html.h"
#include "report/sink.h"

static void expect_text(const char *bytes, size_t count, const char *expected)
{
    sink_t sink;
    sink_open(&sink);
    weft__html_bytes(sink.out, bytes, count);
    char *text = sink_close(&sink);
    assert_string_equal(text, expected);
    free(text);
}

static void expect(const char *from, const char *expected)
{
    expect_text(from, strlen(from), expected);
}

static void markup_is_escaped(void **state)
{
    (void)state;
    expect("</script><b a=\"1\" c='2'>&amp;",
           "&lt;/script&gt;&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp;");
    expect("]]> --> <!--", "]]&gt; --&gt; &lt;!--");
    expect("plain text, \xC3\xA9 \xE2\x86\x92", "plain text, \xC3\xA9 \xE2\x86\x92");
}

#define BAD "\xEF\xBF\xBD"

static void what_html_forbids_is_replaced(void **state)
{
    (void)state;
    expect_text("a\0b", 3, "a" BAD "b");
    expect("a\x01\x1b[31m\x7f", "a" BAD BAD "[31m" BAD);
    expect("tab\tand\nline", "tab\tand\nline");
    expect("\r", BAD);
    expect("\xC2\x80 \xC2\x9F", BAD " " BAD);         /* controls of 8 bits */
    expect("\xEF\xBF\xBE \xEF\xB7\x90", BAD " " BAD); /* no characters */
}

static void bytes_that_are_not_utf8_are_replaced(void **state)
{
    (void)state;
    expect("\xFF\xFE", BAD BAD);
    expect("\xC3", BAD); /* cut short */
    expect("\xE2\x82", BAD BAD);
    expect("\xC0\xBC"
           "script>",
           BAD BAD "script&gt;");        /* an overlong '<' */
    expect("\xED\xA0\x80", BAD BAD BAD); /* half of a pair */
}

static void expect_cut(const char *from, int most, const char *expected)
{
    sink_t sink;
    sink_open(&sink);
    weft__html_cut(sink.out, from, most);
    char *text = sink_close(&sink);
    assert_string_equal(text, expected);
    free(text);
}

static void long_names_are_cut_between_characters(void **state)
{
    (void)state;
    expect_cut("12345", 5, "12345");
    expect_cut("123456", 5, "1234\xE2\x80\xA6");
    expect_cut("\xC3\xA9\xC3\xA9\xC3\xA9", 3, "\xC3\xA9\xC3\xA9\xC3\xA9");
    expect_cut("\xC3\xA9\xC3\xA9\xC3\xA9", 2, "\xC3\xA9\xE2\x80\xA6");
    expect_cut("<<<<", 2, "&lt;\xE2\x80\xA6");
    expect_cut(NULL, 2, "");
    assert_int_equal(weft__html_length("\xC3\xA9 \xFF"), 3);
    assert_int_equal(weft__html_length(NULL), 0);
}

static void tables_escape_and_sort_by_value(void **state)
{
    (void)state;
    static const char *const columns[] = {"na<me", "#size"};
    sink_t sink;
    sink_open(&sink);
    weft__html_table(sink.out, columns, 2);
    weft__html_row(sink.out);
    weft__html_cell(sink.out, "<i>");
    weft__html_number(sink.out, 1024, "1 KiB");
    weft__html_number(sink.out, NAN, "-");
    weft__html_row_end(sink.out);
    weft__html_table_end(sink.out);
    char *text = sink_close(&sink);
    assert_non_null(
        strstr(text, "<th scope=\"col\">na&lt;me</th><th class=\"n\" scope=\"col\">size"));
    assert_non_null(strstr(text, "<td>&lt;i&gt;</td><td class=\"n\" data-v=\"1024\">1 KiB</td>"
                                 "<td class=\"n\"></td></tr>"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(markup_is_escaped),
        cmocka_unit_test(what_html_forbids_is_replaced),
        cmocka_unit_test(bytes_that_are_not_utf8_are_replaced),
        cmocka_unit_test(long_names_are_cut_between_characters),
        cmocka_unit_test(tables_escape_and_sort_by_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
