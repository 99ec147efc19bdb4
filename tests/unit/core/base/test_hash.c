/* Hashes have the values that files and ranks agree on, and see what they
 * should (base/hash.h). */
#include "base/hash.h"

#include "dyt_test.h"

/* The numbers are part of file formats and of what ranks compare: a change
 * here is a change of version. */
static void values_stay_what_they_are(void **state)
{
    uint64_t f = DYTI_FINGERPRINT_SEED;

    (void)state;
    assert_true(dyti_mix64(0) == 0);
    assert_true(dyti_mix64(1) == 0x5692161d100b05e5u);
    assert_true(dyti_fingerprint_u64(f, 1) == 0x943883939db8d575u);
    assert_true(dyti_fingerprint_text(f, "plan") == 0x5ead233fef01b4d9u);
    assert_true(dyti_content_mix(dyti_content_salt(3, 2), 17, 0x3f80) ==
                0x75794f8cc70bc86du);
}

static void order_length_and_place_of_zeros_matter(void **state)
{
    static const struct {
        const char *a;
        size_t a_bytes;
        const char *b;
        size_t b_bytes;
    } row[] = {
        {"ab", 2, "ba", 2},   {"a", 1, "a\0", 2},
        {"", 0, "\0", 1},     {"12345678", 8, "12345678\0", 9},
        {"\0a", 2, "a\0", 2}, {"0123456789", 10, "0123456798", 10},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        assert_true(dyti_fingerprint_bytes(1, row[i].a, row[i].a_bytes) !=
                    dyti_fingerprint_bytes(1, row[i].b, row[i].b_bytes));
    }
    assert_true(dyti_fingerprint_u64(dyti_fingerprint_u64(9, 1), 2) !=
                dyti_fingerprint_u64(dyti_fingerprint_u64(9, 2), 1));
    assert_true(dyti_fingerprint_u64(9, 0) != 9);
}

static void bytes_do_not_depend_on_alignment(void **state)
{
    unsigned char memory[64];
    uint64_t want = 0;

    (void)state;
    for (size_t at = 0; at < 16; at++) {
        uint64_t got;

        for (size_t i = 0; i < 37; i++) {
            memory[at + i] = (unsigned char)(i * 11 + 1);
        }
        got = dyti_fingerprint_bytes(5, memory + at, 37);
        want = at == 0 ? got : want;
        assert_true(want == got);
    }
}

/* Swapping two elements, moving one, or putting it under another tensor or
 * kind changes the sum; cutting the tensor does not. */
static void content_hash_sees_value_place_tensor_and_kind(void **state)
{
    uint64_t salt = dyti_content_salt(1, 0);
    uint64_t ab = dyti_content_mix(salt, 0, 10) + dyti_content_mix(salt, 1, 20);
    uint64_t ba = dyti_content_mix(salt, 0, 20) + dyti_content_mix(salt, 1, 10);

    (void)state;
    assert_true(ab != ba);
    assert_true(dyti_content_mix(salt, 5, 10) != dyti_content_mix(salt, 6, 10));
    assert_true(dyti_content_salt(1, 0) != dyti_content_salt(1, 1));
    assert_true(dyti_content_salt(1, 0) != dyti_content_salt(2, 0));
}

/* Pieces of whole elements add up, a tail is filled with zeros, and each single
 * bit counts. */
static void content_of_bytes_is_that_of_words(void **state)
{
    unsigned char bytes[203];
    uint64_t salt = dyti_content_salt(9, 1), want = 0, whole;

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (unsigned char)(i * 37 + 11);
    }
    for (size_t i = 0; i < sizeof(bytes); i += 8) {
        uint64_t word = 0;

        for (size_t k = i; k < i + 8 && k < sizeof(bytes); k++) {
            word |= (uint64_t)bytes[k] << (8 * (k - i));
        }
        want += dyti_content_mix(salt, 5 + i / 8, word);
    }
    whole = dyti_content_bytes(salt, 5, bytes, sizeof(bytes));
    assert_true(want == whole);
    for (size_t cut = 0; cut < sizeof(bytes); cut += 8) {
        assert_true(whole == dyti_content_bytes(salt, 5, bytes, cut) +
                                 dyti_content_bytes(salt, 5 + cut / 8,
                                                    bytes + cut,
                                                    sizeof(bytes) - cut));
    }
    for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_true(whole != dyti_content_bytes(salt, 5, bytes, sizeof(bytes)));
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_true(dyti_content_bytes(salt, 5, bytes, 0) == 0);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* 64 bits over 200,000 neighbouring elements: no two alike, and each bit set
 * about half of the time. */
static void neighbouring_elements_do_not_collide(void **state)
{
    enum { N = 200000 };
    uint64_t *hash = malloc(N * sizeof(*hash));
    uint32_t ones[64] = {0};

    (void)state;
    assert_non_null(hash);
    for (uint64_t i = 0; i < N; i++) {
        hash[i] = dyti_content_mix(dyti_content_salt((uint32_t)(i % 7), 0), i,
                                   i % 13);
        for (int b = 0; b < 64; b++) {
            ones[b] += (uint32_t)(hash[i] >> b & 1);
        }
    }
    qsort(hash, N, sizeof(*hash), by_value);
    for (size_t i = 1; i < N; i++) {
        assert_true(hash[i] != hash[i - 1]);
    }
    for (int b = 0; b < 64; b++) {
        assert_in_range(ones[b], N / 2 - N / 100, N / 2 + N / 100);
    }
    free(hash);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(values_stay_what_they_are),
    cmocka_unit_test(order_length_and_place_of_zeros_matter),
    cmocka_unit_test(bytes_do_not_depend_on_alignment),
    cmocka_unit_test(content_hash_sees_value_place_tensor_and_kind),
    cmocka_unit_test(content_of_bytes_is_that_of_words),
    cmocka_unit_test(neighbouring_elements_do_not_collide),
};
DYT_TEST_MAIN(tests)
