/* The checksums of Kafka's records, for kernel.py where that is compiled: CRC-32 of messages of magic 0 and 1, CRC-32C
 * of batches. The tests compare them with what Python has.
 *
 * They are C because most of a conversion's time would go into them otherwise: a table does 1 to 2 GB/s, the
 * processor's carry-less multiplication ten times that. Bits are reflected: the lowest bit of the first byte is the
 * highest power of x.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#define SIDEFETCH_MULTIPLIES 1
#include <immintrin.h>
#endif

/* A polynomial P of degree 32, without x^32, and what follows from it. */
typedef struct {
    uint32_t polynomial;
    /* x^(n + 32) and x^(n - 32) modulo P, in 33 bits: they move 64 bits each on by n. */
    uint64_t by_512[2], by_128[2];
    /* For byte b and n from 0 to 7: the checksum of b followed by n zero bytes. */
    uint32_t table[8][256];
} sidefetch_crc;

static sidefetch_crc sidefetch_ieee = {
    .polynomial = 0xedb88320u, .by_512 = {0x154442bd4, 0x1c6e41596}, .by_128 = {0x1751997d0, 0x0ccaa009e}};
static sidefetch_crc sidefetch_castagnoli = {
    .polynomial = 0x82f63b78u, .by_512 = {0x0740eef02, 0x09e4addf8}, .by_128 = {0x0f20c0dfe, 0x14cd00bd6}};

static void sidefetch_fill(sidefetch_crc *kind) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? kind->polynomial : 0);
        kind->table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int zeros = 1; zeros < 8; zeros++) {
            uint32_t crc = kind->table[zeros - 1][byte];
            kind->table[zeros][byte] = crc >> 8 ^ kind->table[0][crc & 255];
        }
}

static void sidefetch_checksums_begin(void) {
    sidefetch_fill(&sidefetch_ieee);
    sidefetch_fill(&sidefetch_castagnoli);
}

static uint32_t sidefetch_by_table(const sidefetch_crc *kind, uint32_t crc, const unsigned char *data, size_t size) {
    for (; size >= 8; data += 8, size -= 8)
        crc = kind->table[7][data[0] ^ (crc & 255)] ^ kind->table[6][data[1] ^ (crc >> 8 & 255)] ^
              kind->table[5][data[2] ^ (crc >> 16 & 255)] ^ kind->table[4][data[3] ^ crc >> 24] ^
              kind->table[3][data[4]] ^ kind->table[2][data[5]] ^ kind->table[1][data[6]] ^
              kind->table[0][data[7]];
    for (; size; data++, size--)
        crc = crc >> 8 ^ kind->table[0][data[0] ^ (crc & 255)];
    return crc;
}

#ifdef SIDEFETCH_MULTIPLIES
/* 128 bits moved on, and added to what is there. */
__attribute__((target("pclmul,sse2"), always_inline)) static inline __m128i
sidefetch_moved(__m128i bits, __m128i by, const unsigned char *there) {
    __m128i high = _mm_clmulepi64_si128(bits, by, 0x00);
    __m128i low = _mm_clmulepi64_si128(bits, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(high, low), _mm_loadu_si128((const __m128i *)there));
}

/* Four times 128 bits abreast, then one, until less than 16 bytes are left. What remains then are 128 bits with the
 * same remainder modulo P as all that went into them, and their own remainder is found by table.
 * Takes 16 bytes or more. */
__attribute__((target("pclmul,sse2"))) static uint32_t
sidefetch_by_multiplying(const sidefetch_crc *kind, uint32_t crc, const unsigned char *data, size_t size) {
    const __m128i by_512 = _mm_loadu_si128((const __m128i *)kind->by_512);
    const __m128i by_128 = _mm_loadu_si128((const __m128i *)kind->by_128);
    __m128i first = _mm_xor_si128(_mm_loadu_si128((const __m128i *)data), _mm_cvtsi32_si128((int)crc));
    unsigned char rest[48];
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
        _mm_storeu_si128((__m128i *)(rest + 16), third);
        _mm_storeu_si128((__m128i *)(rest + 32), fourth);
        for (int at = 0; at < 48; at += 16)
            first = sidefetch_moved(first, by_128, rest + at);
    } else {
        data += 16;
        size -= 16;
    }
    for (; size >= 16; data += 16, size -= 16)
        first = sidefetch_moved(first, by_128, data);
    _mm_storeu_si128((__m128i *)rest, first);
    return sidefetch_by_table(kind, sidefetch_by_table(kind, 0, rest, 16), data, size);
}
#endif

static uint32_t sidefetch_checksum(const sidefetch_crc *kind, const unsigned char *data, size_t size) {
#ifdef SIDEFETCH_MULTIPLIES
    if (size >= 32 && __builtin_cpu_supports("pclmul"))
        return ~sidefetch_by_multiplying(kind, 0xffffffffu, data, size);
#endif
    return ~sidefetch_by_table(kind, 0xffffffffu, data, size);
}

static uint32_t sidefetch_crc32(const unsigned char *data, size_t size) {
    return sidefetch_checksum(&sidefetch_ieee, data, size);
}

static uint32_t sidefetch_crc32c(const unsigned char *data, size_t size) {
    return sidefetch_checksum(&sidefetch_castagnoli, data, size);
}
