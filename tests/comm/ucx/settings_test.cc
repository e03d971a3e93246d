#include "dtensor/comm/ucx/settings.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <ucp/api/ucp.h>

#include "dtensor/base/address_sanitizer.h"

namespace dtensor::comm::ucx {
namespace {

// What main sees, before anybody has called anything.
TEST(Settings, TheSignalsOfCrashesAreNotTaken) {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&major, &minor, &release);  // UCX is loaded
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) {
    struct sigaction action = {};
    ASSERT_EQ(sigaction(signal, nullptr, &action), 0);
    if (!kAddressSanitizer) {
      EXPECT_EQ(action.sa_handler, SIG_DFL) << signal;
    }
  }
}

// A handler that the program installs stays.
TEST(Settings, SettlingAgainChangesNothing) {
  struct sigaction mine = {};
  struct sigaction before = {};
  mine.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGFPE, &mine, &before), 0);
  settle_process();
  struct sigaction now = {};
  sigaction(SIGFPE, &before, &now);
  EXPECT_EQ(now.sa_handler, mine.sa_handler);
}

}  // namespace
}  // namespace dtensor::comm::ucx
