/* CRC-32, as in Kafka's messages of magic 0 and 1, for kernel.py where that is compiled. Its tests compare it with
 * zlib's. It is C because half of a conversion's time would go into it otherwise: a table can do 1 to 2 GB/s, the
 * processor's carry-less multiplication ten times that, and nothing that Python comes with is sure to use it.
 *
 * Bits are reflected: the lowest bit of the first byte is the highest power of x. P is 0x104c11db7.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#define SIDEFETCH_MULTIPLIES 1
#include <immintrin.h>
#endif

/* For byte b and n from 0 to 7: the checksum of b followed by n zero bytes. */
static uint32_t sidefetch_table[8][256];

static void sidefetch_crc32_begin(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
        sidefetch_table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int zeros = 1; zeros < 8; zeros++) {
            uint32_t crc = sidefetch_table[zeros - 1][byte];
            sidefetch_table[zeros][byte] = crc >> 8 ^ sidefetch_table[0][crc & 255];
        }
}

static uint32_t sidefetch_by_table(uint32_t crc, const unsigned char *data, size_t size) {
    for (; size >= 8; data += 8, size -= 8)
        crc = sidefetch_table[7][data[0] ^ (crc & 255)] ^ sidefetch_table[6][data[1] ^ (crc >> 8 & 255)] ^
              sidefetch_table[5][data[2] ^ (crc >> 16 & 255)] ^ sidefetch_table[4][data[3] ^ crc >> 24] ^
              sidefetch_table[3][data[4]] ^ sidefetch_table[2][data[5]] ^ sidefetch_table[1][data[6]] ^
              sidefetch_table[0][data[7]];
    for (; size; data++, size--)
        crc = crc >> 8 ^ sidefetch_table[0][data[0] ^ (crc & 255)];
    return crc;
}

#ifdef SIDEFETCH_MULTIPLIES
/* 128 bits moved on by as many as *powers* are for, and added to what is there. */
__attribute__((target("pclmul,sse2"), always_inline)) static inline __m128i
sidefetch_moved(__m128i bits, __m128i powers, const unsigned char *there) {
    __m128i high = _mm_clmulepi64_si128(bits, powers, 0x00);
    __m128i low = _mm_clmulepi64_si128(bits, powers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(high, low), _mm_loadu_si128((const __m128i *)there));
}

/* Four times 128 bits abreast, then one, until less than 16 bytes are left. What remains then are 128 bits with the
 * same remainder modulo P as all that went into them, and their own remainder is found by table. */
__attribute__((target("pclmul,sse2"))) static uint32_t
sidefetch_by_multiplying(uint32_t crc, const unsigned char *data, size_t size) {
    /* x^(n + 32) and x^(n - 32) modulo P for a move by n bits, reflected in 33 bits. */
    const __m128i by_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i by_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m128i first = _mm_xor_si128(_mm_loadu_si128((const __m128i *)data), _mm_cvtsi32_si128((int)crc));
    unsigned char rest[16];
    if (size >= 64) {
        __m128i second = _mm_loadu_si128((const __m128i *)(data + 16));
        __m128i third = _mm_loadu_si128((const __m128i *)(data + 32));
        __m128i fourth = _mm_loadu_si128((const __m128i *)(data + 48));
        for (data += 64, size -= 64; size >= 64; data += 64, size -= 64) {
            first = sidefetch_moved(first, by_512, data);
            second = sidefetch_moved(second, by_512, data + 16);
            third = sidefetch_moved(third, by_512, data + 32);
            fourth = sidefetch_moved(fourth, by_512, data + 48);
        }
        _mm_storeu_si128((__m128i *)rest, second);
        first = sidefetch_moved(first, by_128, rest);
        _mm_storeu_si128((__m128i *)rest, third);
        first = sidefetch_moved(first, by_128, rest);
        _mm_storeu_si128((__m128i *)rest, fourth);
        first = sidefetch_moved(first, by_128, rest);
    } else {
        data += 16;
        size -= 16;
    }
    for (; size >= 16; data += 16, size -= 16)
        first = sidefetch_moved(first, by_128, data);
    _mm_storeu_si128((__m128i *)rest, first);
    return sidefetch_by_table(sidefetch_by_table(0, rest, 16), data, size);
}
#endif

static uint32_t sidefetch_crc32(const unsigned char *data, size_t size) {
#ifdef SIDEFETCH_MULTIPLIES
    if (size >= 32 && __builtin_cpu_supports("pclmul"))
        return ~sidefetch_by_multiplying(0xffffffffu, data, size);
#endif
    return ~sidefetch_by_table(0xffffffffu, data, size);
}
