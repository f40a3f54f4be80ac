/* Base64, CRC-32 and a small LZ77: bytes in, bytes out. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static int digit(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

ptrdiff_t decode64(const char *in, size_t n, uint8_t *out)
{
    uint8_t *start = out;
    uint32_t held = 0;
    int bits = 0;
    for (size_t i = 0; i < n && in[i] != '='; i++) {
        int d = digit(in[i]);
        if (d < 0) return -1;
        held = held << 6 | (uint32_t)d;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            *out++ = (uint8_t)(held >> bits);
        }
    }
    return out - start;
}

uint32_t crc32(const uint8_t *in, size_t n)
{
    uint32_t table[256], crc = ~0u;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
        table[i] = c;
    }
    for (size_t i = 0; i < n; i++) crc = table[(crc ^ in[i]) & 255] ^ crc >> 8;
    return ~crc;
}

static size_t match(const uint8_t *a, const uint8_t *b, size_t most)
{
    size_t n = 0;
    while (n < most && a[n] == b[n]) n++;
    return n;
}

size_t squeeze(const uint8_t *in, size_t n, uint8_t *out)
{
    size_t made = 0;
    int last[1024];
    memset(last, -1, sizeof last);
    for (size_t i = 0; i < n;) {
        size_t length = 0, back = 0;
        if (i + 3 < n) {
            unsigned h = (in[i] * 2654435761u ^ in[i + 1] * 40503u ^ in[i + 2]) & 1023;
            int at = last[h];
            last[h] = (int)i;
            if (at >= 0 && i - (size_t)at < 4096) {
                length = match(in + at, in + i, n - i < 18 ? n - i : 18);
                back = i - (size_t)at;
            }
        }
        if (length >= 3) {
            out[made++] = (uint8_t)(0x80 | (length - 3) << 3 | back >> 9);
            out[made++] = (uint8_t)(back >> 1);
            i += length;
        } else {
            out[made++] = in[i++] & 0x7f;
        }
    }
    return made;
}
