# What kernel.py calls of checksum.h where it is compiled.
cdef extern from "checksum.h" nogil:
    void sidefetch_crc32_begin()
    unsigned int sidefetch_crc32(const unsigned char *data, size_t size)
