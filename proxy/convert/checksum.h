static unsigned int sidefetch_crc32(const unsigned char *data, size_t size) {
    unsigned int crc = 0xFFFFFFFFu; size_t i; int k;
    for (i = 0; i < size; i++) { crc ^= data[i]; for (k = 0; k < 8; k++) crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1u))); }
    return ~crc;
}
