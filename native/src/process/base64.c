// encodeBase64: writes base64 text directly into the send buffer. Source: RFC 4648, section 4.
#include <stdint.h>
#include <string.h>

#include "support/arguments.h"

static const char ALPHABET[65] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static size_t encoded_length(size_t length) {
  return (length + 2) / 3 * 4;
}

// Three bytes to four characters; the last group is padded.
static void encode_rest(const uint8_t* in, size_t length, uint8_t* out) {
  for (; length >= 3; length -= 3, in += 3, out += 4) {
    uint32_t bits = (uint32_t)in[0] << 16 | (uint32_t)in[1] << 8 | in[2];
    for (int i = 0; i < 4; i++) out[i] = (uint8_t)ALPHABET[bits >> (18 - 6 * i) & 63];
  }
  if (length == 0) return;
  uint32_t bits = (uint32_t)in[0] << 16 | (length > 1 ? (uint32_t)in[1] << 8 : 0);
  out[0] = (uint8_t)ALPHABET[bits >> 18];
  out[1] = (uint8_t)ALPHABET[bits >> 12 & 63];
  out[2] = length > 1 ? (uint8_t)ALPHABET[bits >> 6 & 63] : '=';
  out[3] = '=';
}

// Vectors of the compiler's, so that the code is the same on every machine.
typedef uint8_t bytes_t __attribute__((vector_size(16)));
typedef uint32_t groups_t __attribute__((vector_size(32)));
typedef int8_t letters_t __attribute__((vector_size(32)));

// Twenty-four bytes to thirty-two characters per step, reading twenty-eight; returns the number of bytes encoded.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "ssse3", "default")))
#endif
static size_t
encode_blocks(const uint8_t* in, size_t length, uint8_t* out) {
  size_t done = 0;
  for (; length - done >= 28; done += 24, out += 32) {
    bytes_t low, high;
    memcpy(&low, in + done, sizeof low);
    memcpy(&high, in + done + 12, sizeof high);
    // Three bytes each become a number, the first one highest.
    groups_t bits = (groups_t)__builtin_shufflevector(low, high, 2, 1, 0, 3, 5, 4, 3, 6, 8, 7, 6, 9, 11, 10, 9, 12, 18,
                                                      17, 16, 19, 21, 20, 19, 22, 24, 23, 22, 25, 27, 26, 25, 28);
    letters_t at =
        (letters_t)((bits >> 18 & 0x3f) | (bits >> 4 & 0x3f00) | (bits << 10 & 0x3f0000) | (bits << 24 & 0x3f000000));
    // The gaps in the alphabet after Z, z, 9 and +.
    letters_t text = at + 'A' + (6 & (at > 25)) - (75 & (at > 51)) - (15 & (at > 61)) + (3 & (at > 62));
    memcpy(out, &text, sizeof text);
  }
  return done;
}

EXPORTED(encodeBase64) {
  size_t length, room;
  void *in, *out;
  uint32_t offset;
  if (!arg_parse(env, info, "BBu", &in, &length, &out, &room, &offset)) return NULL;
  size_t wanted = encoded_length(length);
  if (offset > room || wanted > room - offset) {
    napi_throw_range_error(env, NULL, "base64 does not fit into the target");
    return NULL;
  }
  uint8_t* target = (uint8_t*)out + offset;
  size_t done = encode_blocks(in, length, target);
  encode_rest((const uint8_t*)in + done, length - done, target + done / 3 * 4);
  return envd_value(env, 'u', (uint32_t)wanted);
}
