// Output of processes as base64. Input: any bytes. Buffers have exactly the size that is needed.
#include "process/base64.c"

#include "fuzz.h"

static int value_of(uint8_t letter) {
  const char* at = letter ? strchr(ALPHABET, letter) : NULL;
  REQUIRE(at);
  return (int)(at - ALPHABET);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const size_t wanted = (size + 2) / 3 * 4;
  uint8_t *in = malloc(size + !size), *out = malloc(wanted + !wanted);
  if (size > 0) memcpy(in, data, size);
  size_t done = encode_blocks(in, size, out);
  encode_rest(in + done, size - done, out + done / 3 * 4);
  for (size_t at = 0; at < size; at++) {
    const uint8_t* letters = out + at / 3 * 4 + at % 3;
    int bits = value_of(letters[0]) << 6 | (letters[1] == '=' ? 0 : value_of(letters[1]));
    REQUIRE((bits >> (4 - 2 * (at % 3)) & 0xff) == in[at]);
  }
  for (size_t at = size + (size + 2) / 3; at < wanted; at++) REQUIRE(out[at] == '=');
  free(in);
  free(out);
  return 0;
}
