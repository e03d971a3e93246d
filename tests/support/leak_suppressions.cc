// What libraries beneath us keep until the process ends: UCX its lists of transports, and the
// worlds that lost a rank (docs/ucx.md).
extern "C" const char* __lsan_default_suppressions();   // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:libuct\nleak:libucs\nleak:libucp\n";
}
// A test may look at what a program prints.
extern "C" const char* __lsan_default_options();   // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __lsan_default_options() {  // NOLINT(bugprone-reserved-identifier)
  return "print_suppressions=0";
}
