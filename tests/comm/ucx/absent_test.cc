// What a build without UCX says.

#include <gtest/gtest.h>

#include <string>

#include "dtensor/base/error.h"
#include "dtensor/comm/create.h"
#include "dtensor/comm/ucx/registration.h"

namespace dtensor::comm {
namespace {

TEST(UcxAbsent, TheUrlIsAnErrorThatSaysWhatToInstall) {
  ucx::register_backend();
  try {
    create("ucx://?rank=0&size=1");
    ADD_FAILURE() << "made a Comm without UCX";
  } catch (const ArgumentError& e) {
    EXPECT_NE(std::string(e.what()).find("apt-get install libucx-dev"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace dtensor::comm
