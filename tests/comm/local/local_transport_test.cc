#include "dtensor/comm/local/local_transport.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "dtensor/tests/comm/transport_contract.h"

namespace dtensor::comm::local {
namespace {

std::vector<char> bytes_of(int64_t n, int seed) {
  std::vector<char> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<char>(i * 31 + static_cast<size_t>(seed));
  return v;
}

Deadline minute() { return Deadline::after(std::chrono::seconds(60)); }

TEST(LocalTransport, ACancelledReceiveLeavesItsMemoryAlone) {
  const auto t = make_transports(2);
  const auto in = bytes_of(100, 1);
  std::vector<char> first(100, 9);
  std::vector<char> second(100, 9);
  t[1]->receive(0, 5, first.data(), 100).reset();
  const auto send = t[0]->send(1, 5, in.data(), 100);
  const auto receive = t[1]->receive(0, 5, second.data(), 100);
  receive->wait(minute());
  EXPECT_EQ(first, std::vector<char>(100, 9));
  EXPECT_EQ(second, in);
}

// Two threads, many messages, each side cancelling some: nothing is lost of the others.
TEST(LocalTransport, SurvivesCancellationUnderLoad) {
  const auto t = make_transports(2);
  constexpr int kRounds = 2000;
  std::thread sender([&] {
    for (int k = 0; k < kRounds; ++k) {
      const auto in = bytes_of(5000, k);
      const auto send = t[0]->send(1, static_cast<uint64_t>(k), in.data(), 5000);
      if (k % 3 != 0) send->wait(minute());
    }
  });
  for (int k = 0; k < kRounds; ++k) {
    std::vector<char> out(5000);
    auto receive = t[1]->receive(0, static_cast<uint64_t>(k), out.data(), 5000);
    if (k % 3 == 0) {
      receive.reset();
      continue;
    }
    receive->wait(minute());
    ASSERT_EQ(out, bytes_of(5000, k));
  }
  sender.join();
}

using testing::GonePeer;
using testing::TransportContract;
using testing::TransportWorld;

INSTANTIATE_TEST_SUITE_P(Local, TransportContract,
                         ::testing::Values(TransportWorld{"local",
                                                          [](int n) { return make_transports(n); },
                                                          GonePeer::kIsNotTold}),
                         testing::transport_name);

}  // namespace
}  // namespace dtensor::comm::local
