# What kernel.py calls of checksum.h where it is compiled.
cdef extern from "checksum.h" nogil:
    void sidefetch_checksums_begin()
    unsigned int sidefetch_crc32(const unsigned char *data, size_t size)
    unsigned int sidefetch_crc32c(const unsigned char *data, size_t size)
