// A process that is forked from a rank and starts no program: a data loader, say.

#include "dtensor/tests/support/forked.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/base/deadline.h"
#include "dtensor/base/error.h"
#include "dtensor/comm/comm.h"
#include "dtensor/tests/comm/gloo_world.h"
#include "dtensor/tests/comm/values.h"
#include "dtensor/tests/support/sanitized.h"

namespace dtensor::testing {
namespace {

using comm::Comm;
using comm::Work;

class ForkedFromARank : public ::testing::TestWithParam<std::string> {};

// 0 where f throws an Error that says whose the Comm is.
template <class F>
int refuses(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(e.what()).find("forked") != std::string::npos ? 0 : 1;
  }
  return 2;
}

TEST_P(ForkedFromARank, HasNoPartInItsWorldAndEndsNothingOfIt) {
  auto world = gloo_world(2, {{"shm", GetParam()}});
  std::vector<std::unique_ptr<Comm>> groups;
  for (const auto& comm : world) groups.push_back(comm->group(std::vector<int>{0, 1}, "g"));
  std::vector<float> x(2, 3.0F);
  Work pending = world[0]->broadcast(view(x), 1);  // rank 1 has not called it
  const int status = status_of_fork([&] {
    int wrong = 0;
    for (const auto& comm : world) {
      wrong |= refuses([&] { comm->barrier().wait(); });
      wrong |= refuses([&] { comm->shutdown(Deadline::after(std::chrono::seconds(5))); });
      wrong |= refuses([&] { comm->group(std::vector<int>{0, 1}, "h"); });
      comm->abort("by a process that is no rank");
    }
    wrong |= refuses([&] { pending.wait(); });
    groups.clear();
    world.clear();
    if (!kSanitized) {  // thread sanitizer lets a forked process start no thread
      const auto own = gloo_world(2, {{"shm", GetParam()}});
      Work first = own[0]->barrier();
      own[1]->barrier().wait();
      first.wait();
    }
    return wrong;
  });
  EXPECT_EQ(status, 0);
  std::vector<float> y = {7.0F, 8.0F};
  Work sent = world[1]->broadcast(view(y), 1);
  pending.wait();
  sent.wait();
  EXPECT_EQ(x, y);
  for (auto* comms : {&world, &groups}) {
    Work first = (*comms)[0]->barrier();
    (*comms)[1]->barrier().wait();
    first.wait();
  }
}

INSTANTIATE_TEST_SUITE_P(Shm, ForkedFromARank, ::testing::Values("on", "off"));

}  // namespace
}  // namespace dtensor::testing
