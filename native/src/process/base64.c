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

#if defined(__x86_64__)
#include <immintrin.h>

// Twelve bytes to sixteen characters per step; returns the number of bytes encoded. Each step reads sixteen bytes.
__attribute__((target("ssse3"))) static size_t encode_blocks(const uint8_t* in, size_t length, uint8_t* out) {
  // Shuffles each group of three bytes a, b, c to b a c b, so that its four sextets lie within two 16-bit lanes.
  const __m128i spread = _mm_setr_epi8(1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11, 10);
  // Offset from sextet to character, by class: digits (1 to 10), + (11), / (12), A-Z (13), a-z (0).
  const __m128i shifts = _mm_setr_epi8('a' - 26, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52,
                                       '0' - 52, '0' - 52, '0' - 52, '+' - 62, '/' - 63, 'A', 0, 0);
  size_t done = 0;
  for (; length - done >= 16; done += 12, out += 16) {
    __m128i bytes = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i*)(in + done)), spread);
    // A shift to the right is the high half of a product, one to the left the low half.
    __m128i odd = _mm_mulhi_epu16(_mm_and_si128(bytes, _mm_set1_epi32(0x0fc0fc00)), _mm_set1_epi32(0x04000040));
    __m128i even = _mm_mullo_epi16(_mm_and_si128(bytes, _mm_set1_epi32(0x003f03f0)), _mm_set1_epi32(0x01000010));
    __m128i sextets = _mm_or_si128(odd, even);
    __m128i upper = _mm_and_si128(_mm_cmpgt_epi8(_mm_set1_epi8(26), sextets), _mm_set1_epi8(13));
    __m128i class = _mm_or_si128(_mm_subs_epu8(sextets, _mm_set1_epi8(51)), upper);
    _mm_storeu_si128((__m128i*)out, _mm_add_epi8(sextets, _mm_shuffle_epi8(shifts, class)));
  }
  return done;
}

static bool has_blocks(void) {
  return __builtin_cpu_supports("ssse3");
}
#else
#include <arm_neon.h>

// Forty-eight bytes to sixty-four characters per step; returns the number of bytes encoded.
static size_t encode_blocks(const uint8_t* in, size_t length, uint8_t* out) {
  const uint8x16x4_t alphabet = vld1q_u8_x4((const uint8_t*)ALPHABET);
  const uint8x16_t sextet = vdupq_n_u8(63);
  size_t done = 0;
  for (; length - done >= 48; done += 48, out += 64) {
    uint8x16x3_t bytes = vld3q_u8(in + done);
    uint8x16x4_t text;
    text.val[0] = vshrq_n_u8(bytes.val[0], 2);
    text.val[1] = vandq_u8(vsliq_n_u8(vshrq_n_u8(bytes.val[1], 4), bytes.val[0], 4), sextet);
    text.val[2] = vandq_u8(vsliq_n_u8(vshrq_n_u8(bytes.val[2], 6), bytes.val[1], 2), sextet);
    text.val[3] = vandq_u8(bytes.val[2], sextet);
    for (int i = 0; i < 4; i++) text.val[i] = vqtbl4q_u8(alphabet, text.val[i]);
    vst4q_u8(out, text);
  }
  return done;
}

static bool has_blocks(void) {
  return true;
}
#endif

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
  size_t done = has_blocks() ? encode_blocks(in, length, target) : 0;
  encode_rest((const uint8_t*)in + done, length - done, target + done / 3 * 4);
  return envd_value(env, 'u', (uint32_t)wanted);
}
