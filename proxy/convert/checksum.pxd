# What kernel.py calls of checksum.h when it is compiled.
cdef extern from "checksum.h" nogil:
    unsigned int sidefetch_crc32(const unsigned char *data, size_t size)
