// Runs a target with the files that are its arguments, without libFuzzer.
#include "fuzz.h"

int main(int count, char** files) {
  for (int i = 1; i < count; i++) {
    FILE* file = fopen(files[i], "r");
    REQUIRE(file && fseek(file, 0, SEEK_END) == 0);
    const size_t size = (size_t)ftell(file);
    // Of exactly this size, so that the sanitizer sees each byte beyond.
    uint8_t* data = malloc(size + !size);
    rewind(file);
    REQUIRE(fread(data, 1, size, file) == size);
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
  }
  return 0;
}
