#include "dtensor/comm/gloo/gloo_transport.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/store.h"

// Gloo keeps the result of getaddrinfo when it makes a device.
extern "C" const char* __lsan_default_suppressions();   // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:gloo::transport::tcp::CreateDeviceAttr\n";
}

namespace dtensor::comm::gloo {
namespace {

using Kind = TransportError::Kind;
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

Kind kind_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const TransportError& e) {
    EXPECT_EQ(e.peer, 1);
    return e.kind;
  }
  ADD_FAILURE() << "did not throw";
  return Kind::kTimeout;
}

void expect_alive(Transport& a, Transport& b) {
  const auto sent = bytes(1000, 'q');
  std::vector<char> got(1000);
  const auto r = b.receive(a.rank(), 999, got.data(), 1000);
  a.send(b.rank(), 999, sent.data(), 1000)->wait(soon());
  r->wait(soon());
  EXPECT_EQ(got, sent);
}

TEST(GlooTransport, MessagesOfOneTagKeepTheirOrderAndTagsAreIndependent) {
  const auto t = transports(2);
  const std::vector<int64_t> sizes = {1, 511, 4097, t[0]->max_message_bytes(), 3};
  std::vector<std::vector<char>> sent;
  std::vector<std::unique_ptr<Transfer>> sends;
  for (const uint64_t tag : {5ULL, 1ULL << 63}) {
    for (const int64_t n : sizes) {
      sent.push_back(bytes(n, static_cast<char>(sent.size())));
      sends.push_back(t[0]->send(1, tag, sent.back().data(), n));
    }
  }
  std::vector<std::vector<char>> got(sent.size());
  std::vector<std::unique_ptr<Transfer>> receives;
  for (const size_t half : {1U, 0U}) {  // the second tag first
    for (size_t i = 0; i < sizes.size(); ++i) {
      auto& into = got[half * sizes.size() + i];
      into.resize(static_cast<size_t>(sizes[i]));
      receives.push_back(t[1]->receive(0, half == 1 ? 1ULL << 63 : 5, into.data(), sizes[i]));
    }
  }
  for (const auto& x : receives) x->wait(soon());
  for (const auto& x : sends) x->wait(soon());
  EXPECT_EQ(got, sent);
  EXPECT_TRUE(receives[0]->ready());
}

// ucxx#107: a message of another length than announced, shorter or longer, is an error.
TEST(GlooTransport, AMessageOfAnotherSizeIsAnErrorAndNotTaken) {
  const auto t = transports(2);
  const auto sent = bytes(2000, 'a');
  for (const int64_t n : {99, 2000}) {
    std::vector<char> got(100, 'x');
    const auto r = t[0]->receive(1, 7, got.data(), 100);
    t[1]->send(0, 7, sent.data(), n)->wait(soon());
    EXPECT_EQ(kind_of([&] { r->wait(soon()); }), Kind::kPeer);
    EXPECT_EQ(got, std::vector<char>(100, 'x'));
  }
  expect_alive(*t[0], *t[1]);
}

TEST(GlooTransport, InterruptEndsAWaitAndNoOther) {
  const auto t = transports(2);
  std::vector<char> one(10);
  std::vector<char> two(10);
  const auto a = t[0]->receive(1, 1, one.data(), 10);
  const auto b = t[0]->receive(1, 2, two.data(), 10);
  a->interrupt();  // before the wait
  EXPECT_EQ(kind_of([&] { a->wait(soon()); }), Kind::kInterrupted);
  std::thread other([&] { a->interrupt(); });  // before or during it
  EXPECT_EQ(kind_of([&] { a->wait(soon()); }), Kind::kInterrupted);
  other.join();
  const auto sent = bytes(10, 'b');
  t[1]->send(0, 2, sent.data(), 10)->wait(soon());
  b->wait(soon());
  EXPECT_EQ(two, sent);
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

TEST(GlooTransport, ATransferOutlivesItsTransport) {
  auto t = transports(2);
  std::vector<char> got(10);
  auto r = t[0]->receive(1, 1, got.data(), 10);
  t[0].reset();
  const auto sent = bytes(10, 'e');
  t[1]->send(0, 1, sent.data(), 10)->wait(soon());
  r->wait(soon());
  EXPECT_EQ(got, sent);
}

// gloo#520: the peer is gone. No SIGPIPE, no end of the process.
TEST(GlooTransport, APeerThatIsGoneIsAnError) {
  auto t = transports(2);
  std::vector<char> got(10);
  const auto r = t[0]->receive(1, 1, got.data(), 10);
  t[1].reset();
  EXPECT_EQ(kind_of([&] { r->wait(soon()); }), Kind::kPeer);
  const auto sent = bytes(t[0]->max_message_bytes(), 'f');
  EXPECT_EQ(kind_of([&] { t[0]->send(1, 2, sent.data(), 100)->wait(soon()); }), Kind::kPeer);
  EXPECT_EQ(kind_of([&] { t[0]->receive(1, 2, got.data(), 10)->wait(soon()); }), Kind::kPeer);
}

TEST(GlooTransport, TheDeadlineEndsAWait) {
  const auto t = transports(2);
  std::vector<char> got(10);
  const auto r = t[0]->receive(1, 1, got.data(), 10);
  EXPECT_EQ(kind_of([&] { r->wait(Deadline::after(milliseconds(5))); }), Kind::kTimeout);
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

}  // namespace
}  // namespace dtensor::comm::gloo
