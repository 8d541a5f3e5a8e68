// How the sanitizers report, for programs without environment, too: each process into a file of its own. Leaks are not
// looked for, as V8 ends without freeing; what is freed is kept in small number, as tests look at memory.
#define REPORTING "log_path=" SANITIZER_REPORTS "/report:log_exe_name=1:print_stacktrace=1:"

// The runtime is loaded behind a library that is preloaded. Undefined behaviour in the addon is a trap: the runtime that
// reports it would not write to the file.
const char* __asan_default_options(void) {
  return REPORTING "detect_leaks=0:quarantine_size_mb=16:verify_asan_link_order=0:handle_sigill=1:disable_coredump=0:detect_stack_use_after_return=1";
}

const char* __ubsan_default_options(void) {
  return REPORTING;
}

// Node and libuv are not instrumented: what they do without calls of libc is not seen.
const char* __tsan_default_options(void) {
  return REPORTING "report_signal_unsafe=0:report_thread_leaks=0:ignore_noninstrumented_modules=1:disable_coredump=0";
}
