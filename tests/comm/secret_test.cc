// Processes that have to know a secret, and those who do not.

#include "dtensor/comm/secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/control_mesh.h"
#include "dtensor/comm/file_store.h"
#include "dtensor/comm/handshake.h"
#include "dtensor/comm/sealed_store.h"
#include "dtensor/comm/socket.h"
#include "dtensor/comm/tcp_store.h"

namespace dtensor::comm {
namespace {

using internal::Fd;
using internal::Handshake;
using std::chrono::seconds;

const Deadline kNever = Deadline::after(std::chrono::minutes(5));

std::shared_ptr<const Secret> secret(const std::string& text = "sixteen bytes or more") {
  return std::make_shared<Secret>(text);
}

std::shared_ptr<const Secret> read(const std::map<std::string, std::string>& variables) {
  return secret_of_environment([&](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

std::string hex(const Secret::Mac& mac) {
  std::string out;
  for (const char c : mac) {
    for (const int shift : {4, 0})
      out += "0123456789abcdef"[(static_cast<unsigned char>(c) >> shift) & 15];
  }
  return out;
}

TEST(Secret, IsHmacSha256OfRoleAndData) {
  // printf 'dtensor/5/store/abc' | openssl dgst -sha256 -hmac 'sixteen bytes or more'
  EXPECT_EQ(hex(secret()->mac("store", "abc")),
            "246117df6bf86b88d7e91b1e02eb6f2614e1e14ca34be42cfd76747fdf5201b2");
  const auto mac = secret()->mac("store", "abc");
  EXPECT_TRUE(secret()->verifies("store", "abc", mac));
  EXPECT_FALSE(secret()->verifies("store", "abd", mac));
  EXPECT_FALSE(secret()->verifies("stor", "eabc", mac));
  EXPECT_FALSE(secret("another one of 16 bytes")->verifies("store", "abc", mac));
  EXPECT_NE(Secret::nonce(), Secret::nonce());
}

TEST(Secret, ComesFromAVariableOrAFileThatOnlyItsOwnerReads) {
  EXPECT_EQ(read({}), nullptr);
  const auto given = read({{"DTENSOR_SECRET", "0123456789abcdef"}});
  const std::string path = std::string(testing::TempDir()) + "/secret";
  std::ofstream(path) << "0123456789abcdef\n";
  chmod(path.c_str(), 0600);
  const auto of_file = read({{"DTENSOR_SECRET_FILE", path}});
  EXPECT_EQ(given->mac("a", "b"), of_file->mac("a", "b"));

  const auto refused = [](const std::map<std::string, std::string>& variables) {
    const std::string error = error_of([&] { read(variables); });
    EXPECT_EQ(error.find("0123456789abcdef"), std::string::npos) << "the secret is in: " << error;
    return error;
  };
  EXPECT_NE(refused({{"DTENSOR_SECRET", "0123456789abcdef"}, {"DTENSOR_SECRET_FILE", path}})
                .find("DTENSOR_SECRET and DTENSOR_SECRET_FILE"),
            std::string::npos);
  EXPECT_NE(refused({{"DTENSOR_SECRET", "short"}}).find("16"), std::string::npos);
  EXPECT_NE(refused({{"DTENSOR_SECRET_FILE", "/no/such"}}).find("/no/such"), std::string::npos);
  for (const mode_t mode : {0644, 0640, 0604, 0620, 0602}) {
    chmod(path.c_str(), mode);
    EXPECT_NE(refused({{"DTENSOR_SECRET_FILE", path}}).find("chmod 600"), std::string::npos)
        << mode;
  }
  chmod(path.c_str(), 0400);
  EXPECT_NE(read({{"DTENSOR_SECRET_FILE", path}}), nullptr);
}

// What the connecting side would send, by hand.
struct Client {
  std::string nonce = std::string(32, 'c');
  std::string hello() const { return "DTAUTH01" + nonce; }
  std::string proof(const std::string& answer, const Secret& key,
                    const std::string& service) const {
    const auto mac = key.mac("connect " + service, nonce + answer.substr(0, 32));
    return {mac.data(), mac.size()};
  }
};

TEST(Handshake, TakesByteByByteWhoKnowsTheSecretAndLeavesTheRest) {
  Handshake h(secret(), "store");
  const Client client;
  std::string in;
  std::string out;
  for (const char c : client.hello()) {
    in += c;
    EXPECT_EQ(h.step(in, out), Handshake::State::kWaits);
  }
  ASSERT_EQ(out.size(), 64U);
  in += client.proof(out, *secret(), "store");
  in += "the rest";
  EXPECT_EQ(h.step(in, out), Handshake::State::kDone);
  EXPECT_EQ(in, "the rest");
  EXPECT_EQ(out.size(), 64U);
}

TEST(Handshake, RefusesAnotherSecretAnotherServiceAReflectionAndGarbage) {
  const Client client;
  for (const int wrong : {0, 1, 2}) {
    Handshake h(secret(), "store");
    std::string in = client.hello();
    std::string out;
    h.step(in, out);
    in += wrong == 0   ? client.proof(out, *secret("another one of 16 bytes"), "store")
          : wrong == 1 ? client.proof(out, *secret(), "control")
                       : out.substr(32);  // what the accepting side has proved itself
    EXPECT_EQ(h.step(in, out), Handshake::State::kRefused) << wrong;
  }
  for (const std::string text : {"GET / HTTP/1.1", "DTAUTH02", "\n", "DTS1"}) {
    Handshake h(secret(), "store");
    std::string in = text;
    std::string out;
    EXPECT_EQ(h.step(in, out), Handshake::State::kRefused) << text;
    EXPECT_EQ(out, "");
  }
  // A recorded handshake is worth nothing: the nonce is another.
  Handshake first(secret(), "store");
  Handshake second(secret(), "store");
  std::string in = client.hello();
  std::string out;
  first.step(in, out);
  const std::string proof = client.proof(out, *secret(), "store");
  in = client.hello() + proof;
  EXPECT_EQ(second.step(in, out), Handshake::State::kRefused);
}

// The accepting side has to show that it knows it, too.
TEST(Handshake, TheConnectingSideRefusesWhoDoesNotKnowTheSecret) {
  const Fd listener = internal::listen_on("127.0.0.1", 0);
  const Fd fd = internal::connect_to(internal::local_address(listener), kNever);
  std::thread impostor([&] {
    Fd peer;
    while (!(peer = internal::accept_from(listener))) std::this_thread::yield();
    std::array<char, 40> hello;
    internal::read_all(peer, hello.data(), hello.size(), kNever);
    internal::write_all(peer, std::string(64, 'x'), kNever);
    char byte;
    EXPECT_THROW(internal::read_all(peer, &byte, 1, Deadline::after(std::chrono::milliseconds(1))),
                 Error)
        << "a proof was given to who does not know the secret";
  });
  EXPECT_NE(error_of([&] {
              internal::authenticate(fd, *secret(), "store", kNever);
            }).find("DTENSOR_SECRET"),
            std::string::npos);
  impostor.join();
}

TEST(SecretStore, ServesWhoKnowsTheSecretAndDropsOthers) {
  const auto served = make_tcp_store({.serve = true, .secret = secret()});
  const int port = tcp_store_port(*served);
  served->set("before", "1");
  const auto good = make_tcp_store({.port = port, .secret = secret()});
  EXPECT_EQ(good->get("before", kNever), "1");
  good->set("after", "2");
  EXPECT_EQ(served->get("after", kNever), "2");

  const auto other = secret("another one of 16 bytes");
  EXPECT_NE(
      error_of([&] { make_tcp_store({.port = port, .secret = other}); }).find("DTENSOR_SECRET"),
      std::string::npos);
  const auto none = make_tcp_store({.port = port});
  EXPECT_NE(error_of([&] { none->set("evil", "3"); }).find("DTENSOR_SECRET"), std::string::npos);
  EXPECT_FALSE(served->has("evil"));

  const internal::HostPort at{"127.0.0.1", port};
  const Fd half = internal::connect_to(at, kNever);
  internal::write_all(half, "DTAUTH01abc", kNever);
  const Fd silent = internal::connect_to(at, kNever);
  const Fd garbage = internal::connect_to(at, kNever);
  internal::write_all(garbage, "GET / HTTP/1.1\r\n\r\n", kNever);
  char byte;
  EXPECT_THROW(internal::read_all(garbage, &byte, 1, kNever), Error);
  good->set("still", "4");
  EXPECT_EQ(good->get("still", kNever), "4");
}

// Of two without a secret one has one now: no server to show it to.
TEST(SecretStore, AServerWithoutASecretIsRefused) {
  const auto served = make_tcp_store({.serve = true});
  EXPECT_NE(error_of([&] {
              make_tcp_store({.port = tcp_store_port(*served), .secret = secret()});
            }).find("DTENSOR_SECRET"),
            std::string::npos);
}

TEST(SealedStore, TakesOnlyValuesOfWhoKnowsTheSecret) {
  const auto inner = make_memory_store();
  const auto a = make_sealed_store(inner, secret());
  const auto b = make_sealed_store(inner, secret());
  a->set("k", "v");
  a->set("k", "v");  // as every store: the same again is no error
  a->set("empty", "");
  EXPECT_EQ(b->get("k", kNever), "v");
  EXPECT_EQ(b->get("empty", kNever), "");
  EXPECT_THROW(b->set("k", "w"), Error);
  inner->set("forged", "127.0.0.1:6666");
  inner->set("moved", inner->get("k", kNever));  // right, and of another key
  for (const char* key : {"forged", "moved"}) {
    EXPECT_NE(error_of([&] { b->get(key, kNever); }).find(key), std::string::npos);
  }
}

TEST(SecretControlMesh, StrangersAreDroppedAndARankWithAnotherSecretIsRefused) {
  for (const bool all_know : {true, false}) {
    const auto store = make_memory_store();
    std::vector<Fd> listeners;
    for (int r = 0; r < 3; ++r) listeners.push_back(internal::listen_on("127.0.0.1", 0));
    const auto address = internal::local_address(listeners[0]);
    std::vector<Fd> strangers;
    for (const char* text : {"DTAUTH01", "DTCTRL01token", "x", ""}) {
      strangers.push_back(internal::connect_to(address, kNever));
      internal::write_all(strangers.back(), text, kNever);
    }
    std::array<std::string, 3> errors;
    std::array<std::vector<Fd>, 3> mesh;
    std::vector<std::thread> threads;
    for (int r = 0; r < 3; ++r) {
      threads.emplace_back([&, r] {
        const auto key = r == 2 && !all_know ? secret("another one of 16 bytes") : secret();
        const auto bound = all_know ? kNever : Deadline::after(std::chrono::milliseconds(500));
        errors[r] = error_of([&] {
          mesh[r] = internal::connect_control_mesh(std::move(listeners[static_cast<size_t>(r)]),
                                                   *store, {r, 3, "token", "", bound, key});
        });
      });
    }
    for (auto& t : threads) t.join();
    for (int r = 0; r < 3; ++r) {
      if (all_know) {
        ASSERT_EQ(errors[r], "");
        for (int p = 0; p < 3; ++p) EXPECT_EQ(static_cast<bool>(mesh[r][p]), r != p);
      } else {
        EXPECT_NE(errors[r].find(r == 2 ? "DTENSOR_SECRET" : "rank 2 did not connect"),
                  std::string::npos)
            << r << ": " << errors[r];
      }
    }
  }
}

}  // namespace
}  // namespace dtensor::comm
