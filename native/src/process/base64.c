// encodeBase64 writes base64 text directly into the send buffer. Source: RFC 4648, section 4.
#include <string.h>

#include "support/napi.h"

static const char ALPHABET[65] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// Encodes three bytes as four characters each, and pads the last group.
static void encode_rest(const uint8_t* in, size_t length, uint8_t* out) {
  for (size_t at = 0; at < length; at += 3, out += 4) {
    const size_t left = length - at;
    uint32_t bits = (uint32_t)in[at] << 16;
    if (left > 1) bits |= (uint32_t)in[at + 1] << 8;
    if (left > 2) bits |= in[at + 2];
    for (size_t i = 0; i < 4; i++) out[i] = i <= left ? (uint8_t)ALPHABET[bits >> (18 - 6 * i) & 63] : '=';
  }
}

// The compiler's vectors make the code the same on every machine.
typedef uint8_t bytes_t __attribute__((vector_size(16)));
typedef uint32_t groups_t __attribute__((vector_size(32)));
typedef uint16_t halves_t __attribute__((vector_size(32)));
typedef int8_t letters_t __attribute__((vector_size(32)));

// Encodes 24 bytes as 32 characters per step, which reads 28 bytes. Returns the number of bytes that were encoded.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "ssse3", "default")))
#endif
static size_t
encode_blocks(const uint8_t* in, size_t length, uint8_t* out) {
  size_t done = 0;
// Four steps share the constants, for which there are too few registers.
#pragma GCC unroll 4
  for (; length - done >= 28; done += 24, out += 32) {
    bytes_t low, high;
    memcpy(&low, in + done, sizeof low);
    memcpy(&high, in + done + 12, sizeof high);
    // Three bytes a, b, c each become b a c b, in which two shifts and a product find the sextets.
    groups_t bits = (groups_t)__builtin_shufflevector(low, high, 1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11, 10, 17,
                                                      16, 18, 17, 20, 19, 21, 20, 23, 22, 24, 23, 26, 25, 27, 26);
    groups_t odd = (groups_t)((halves_t)(bits & 0x003f03f0) * (halves_t)((groups_t){0} + 0x01000010));
    letters_t at = (letters_t)((bits >> 10 & 0x3f) | (bits >> 6 & 0x3f0000) | odd);
    // The terms skip the gaps in the alphabet after Z, z, 9 and +.
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
  size_t wanted = (length + 2) / 3 * 4;
  if (offset > room || wanted > room - offset) {
    napi_throw_range_error(env, NULL, "base64 does not fit into the target");
    return NULL;
  }
  uint8_t* target = (uint8_t*)out + offset;
  size_t done = encode_blocks(in, length, target);
  encode_rest((const uint8_t*)in + done, length - done, target + done / 3 * 4);
  return envd_number(env, (double)wanted);
}
