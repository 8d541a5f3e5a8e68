// Functions of glibc 2.38 and of GCC 13's C++ library, for programs that were linked with them.
#include <stdlib.h>

long __isoc23_strtol(const char* text, char** end, int base) {
  return strtol(text, end, base);
}

unsigned long __isoc23_strtoul(const char* text, char** end, int base) {
  return strtoul(text, end, base);
}

void _ZSt21ios_base_library_initv(void) {
}
