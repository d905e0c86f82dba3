/* Text of others on a terminal: nothing that moves a cursor comes through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/log.h"
#include "base/plain.h"

static void controls_are_escaped(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
    } rows[] = {
        {"halo", "halo"},
        {"", ""},
        {"na\xc3\xafve \xe2\x82\xac", "na\xc3\xafve \xe2\x82\xac"},
        {"a\033[2Jb", "a\\x1b[2Jb"},
        {"a\rb\tc\x7f", "a\\x0db\\x09c\\x7f"},
        {"a\nb", "a\\x0ab"},
        {"csi \xc2\x9b"
         "2J",
         "csi \\xc2\\x9b2J"},
        {"no-break\xc2\xa0", "no-break\xc2\xa0"},
        {"\x9b"
         "2J\xff",
         "\\x9b2J\\xff"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char out[64];
        assert_string_equal(weft__plain(out, sizeof(out), rows[i].text, false), rows[i].shown);
        assert_int_equal(weft__is_plain(rows[i].text, false),
                         strcmp(rows[i].text, rows[i].shown) == 0);
    }
    char out[64], little[5];
    assert_string_equal(weft__plain(out, sizeof(out), "a\nb\033", true), "a\nb\\x1b");
    assert_string_equal(weft__plain(little, sizeof(little), "abc\033", false), "abc");
    assert_string_equal(weft__plain(little, sizeof(little), "abc\xc3\xaf", false), "abc");
}

static void sentences_are_plain(void **state)
{
    (void)state;
    weft__fail(WEFT_ERR_INVALID, "there is no pair \"%s\"", "\033]0;title\007");
    assert_string_equal(weft_last_error(), "there is no pair \"\\x1b]0;title\\x07\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(controls_are_escaped),
        cmocka_unit_test(sentences_are_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
