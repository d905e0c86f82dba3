/* Which backend a communicator has: the votes of its ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "boot/store_fixture.h"
#include "comm/placement.h"

static const weft_member_t here = {.host = 1}, elsewhere = {.host = 2}; /* virtual GPUs */

static void virtual_gpus_need_no_vote(void **state)
{
    (void)state;
    const weft_backend_ops_t *backend = NULL;
    assert_int_equal(weft__backend_choose(&(weft_members_t){.size = 3}, &backend), WEFT_OK);
    assert_ptr_equal(backend, &weft__backend_shm);
    assert_int_equal(weft__backend_choose(&(weft_members_t){.size = 3, .apart = true}, &backend),
                     WEFT_ERR_UNSUPPORTED);
}

static void all_learn_what_the_last_one_found(void **state)
{
    (void)state;
    weft_store_conn_t *store = connect_store();
    for (int r = 0; r < 3; r++) {
        assert_int_equal(
            weft__placement_tell(store, "near", r, 3, r == 1 ? &elsewhere : &here, LIMIT_MS),
            WEFT_OK);
    }
    for (int r = 0; r < 3; r++) {
        const weft_backend_ops_t *backend = NULL;
        assert_int_equal(weft__placement_await(store, "near", r, 3, LIMIT_MS, &backend), WEFT_OK);
        assert_ptr_equal(backend, &weft__backend_shm);
    }
    weft__store_close(store);
}

static void those_who_do_not_come_are_named(void **state)
{
    (void)state;
    weft_store_conn_t *store = connect_store();
    const weft_backend_ops_t *backend = NULL;
    assert_int_equal(weft__placement_tell(store, "late", 0, 3, &here, 100), WEFT_OK);
    assert_int_equal(weft__placement_tell(store, "late", 1, 3, &here, 100), WEFT_OK);
    assert_int_equal(weft__placement_await(store, "late", 1, 3, 100, &backend), WEFT_ERR_TIMEOUT);
    assert_non_null(strstr(weft_last_error(), "rank 2 did not join the communicator within 0.1 s"));

    /* Rank 1 has given up, and may come again; rank 0 is still there, and may not. */
    assert_int_equal(weft__placement_tell(store, "late", 0, 3, &here, 100), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_last_error(), "rank 0 of this communicator has joined already"));
    assert_int_equal(weft__placement_tell(store, "late", 2, 3, &here, 100), WEFT_OK);
    assert_int_equal(weft__placement_await(store, "late", 2, 3, 100, &backend), WEFT_ERR_TIMEOUT);
    assert_non_null(strstr(weft_last_error(), "rank 1"));
    assert_int_equal(weft__placement_tell(store, "late", 1, 3, &here, 100), WEFT_OK);
    assert_int_equal(weft__placement_tell(store, "late", 2, 3, &here, 100), WEFT_OK);
    assert_int_equal(weft__placement_await(store, "late", 0, 3, LIMIT_MS, &backend), WEFT_OK);
    assert_ptr_equal(backend, &weft__backend_shm);
    weft__store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(virtual_gpus_need_no_vote),
        cmocka_unit_test(all_learn_what_the_last_one_found),
        cmocka_unit_test(those_who_do_not_come_are_named),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
