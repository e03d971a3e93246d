#include "dtensor/comm/gloo/gloo_transport.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/store.h"
#include "dtensor/tests/comm/process_worlds.h"
#include "dtensor/tests/comm/transport_contract.h"

// Gloo keeps the result of getaddrinfo when it makes a device.
extern "C" const char* __lsan_default_suppressions();   // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:gloo::transport::tcp::CreateDeviceAttr\n";
}

namespace dtensor::comm::gloo {
namespace {

using std::chrono::milliseconds;
constexpr std::chrono::seconds kLong{60};

std::vector<std::shared_ptr<Transport>> transports(int size) {
  const auto store = make_memory_store();
  std::vector<std::shared_ptr<Transport>> out(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      GlooTransportOptions o;
      o.rank = r;
      o.size = size;
      o.token = "token";
      o.deadline = Deadline::after(kLong);
      out[static_cast<size_t>(r)] = make_gloo_transport(store, o);
    });
  }
  for (auto& t : threads) t.join();
  return out;
}

std::vector<char> bytes(int64_t count, char seed) {
  std::vector<char> v(static_cast<size_t>(count));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<char>(seed + i % 101);
  return v;
}

Deadline soon() { return Deadline::after(kLong); }

void expect_alive(Transport& a, Transport& b) {
  const auto sent = bytes(1000, 'q');
  std::vector<char> got(1000);
  const auto r = b.receive(a.rank(), 999, got.data(), 1000);
  a.send(b.rank(), 999, sent.data(), 1000)->wait(soon());
  r->wait(soon());
  EXPECT_EQ(got, sent);
}

// pytorch#67742: what was cancelled is not written later, and harms nobody else.
TEST(GlooTransport, ACancelledReceiveIsNotWrittenAndTheConnectionLives) {
  const auto t = transports(2);
  const int64_t n = t[0]->max_message_bytes();
  auto got = std::make_unique<std::vector<char>>(static_cast<size_t>(n), 'x');
  t[0]->receive(1, 1, got->data(), n).reset();
  const auto sent = bytes(n, 'c');
  t[1]->send(0, 1, sent.data(), n)->wait(soon());  // Gloo still takes it
  expect_alive(*t[1], *t[0]);
  EXPECT_EQ(*got, std::vector<char>(static_cast<size_t>(n), 'x'));
}

TEST(GlooTransport, ACancelledSendDoesNotReadItsMemoryAndTheConnectionLives) {
  const auto t = transports(2);
  const int64_t n = t[0]->max_message_bytes();
  {
    const auto sent = bytes(n, 'd');
    t[0]->send(1, 1, sent.data(), n).reset();
  }  // its memory is gone: the address sanitizer would see a read
  std::vector<char> got(static_cast<size_t>(n));
  t[1]->receive(0, 1, got.data(), n)->wait(soon());
  EXPECT_EQ(got, bytes(n, 'd'));
  expect_alive(*t[0], *t[1]);
}

TEST(GlooTransport, ARankThatDoesNotComeIsAnError) {
  const auto store = make_memory_store();
  GlooTransportOptions o;
  o.size = 2;
  o.deadline = Deadline::after(milliseconds(50));
  EXPECT_THROW(make_gloo_transport(store, o), Error);
}

TEST(GlooTransport, AnAddressThatIsNotOursIsNamed) {
  GlooTransportOptions o;
  o.size = 2;
  o.address = "192.0.2.1";  // TEST-NET-1: nobody's
  try {
    make_gloo_transport(make_memory_store(), o);
    FAIL() << "bound to an address of nobody";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("192.0.2.1"), std::string::npos) << e.what();
  }
}

using testing::TransportContract;
INSTANTIATE_TEST_SUITE_P(Gloo, TransportContract,
                         ::testing::Values(testing::TransportWorld{"gloo", transports}),
                         testing::transport_name);

TEST(GlooTransportContract, HoldsBetweenProcesses) {
  EXPECT_EQ(testing::run_suite_in_processes("tests/comm/gloo/transport_rank", 3, "gloo"), 0);
}

}  // namespace
}  // namespace dtensor::comm::gloo
