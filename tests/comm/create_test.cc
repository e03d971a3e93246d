#include "dtensor/comm/create.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/comm/comm_error.h"
#include "dtensor/comm/local/local.h"
#include "dtensor/comm/root.h"

namespace dtensor::comm {
namespace {

void expect_message(const std::function<void()>& f, const std::vector<std::string>& parts) {
  try {
    f();
    FAIL() << "was accepted";
  } catch (const ArgumentError& e) {
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  }
}

TEST(ParseUrl, ReadsEveryPart) {
  const Endpoint e = parse_url(
      "gloo://10.0.0.1:29500?rank=3&size=4&generation=2&timeout=60&store=file:/tmp/"
      "a%26b&liveness=5");
  EXPECT_EQ(e.scheme, "gloo");
  EXPECT_EQ(e.host, "10.0.0.1");
  EXPECT_EQ(e.port, 29500);
  EXPECT_EQ(e.rank, 3);
  EXPECT_EQ(e.size, 4);
  EXPECT_EQ(e.generation, 2);
  EXPECT_EQ(e.options.at("store"), "file:/tmp/a&b");
  EXPECT_EQ(e.options.at("liveness"), "5");
  EXPECT_EQ(e.options.size(), 2U);
  EXPECT_LE(e.deadline.left(), std::chrono::seconds(60));
}

TEST(ParseUrl, AnIpv6HostIsInBrackets) {
  const Endpoint e = parse_url("gloo://[::1]:7?rank=0&size=1");
  EXPECT_EQ(e.host, "::1");
  EXPECT_EQ(e.port, 7);
}

TEST(ParseUrl, OnlyLocalMayLeaveOutRankAndSize) {
  EXPECT_EQ(parse_url("local://").size, 1);
  expect_message([] { parse_url("gloo://127.0.0.1:1"); }, {"no rank and no size"});
}

TEST(ParseUrl, WhatCannotBeIsRefusedWithTheUrl) {
  for (const char* url :
       {"", "gloo", "://", "127.0.0.1:1?rank=0&size=1", "gloo://host?rank=0&size=1",
        "gloo://host:x?rank=0&size=1", "gloo://host:70000?rank=0&size=1", "gloo://:1?rank=0&size=1",
        "gloo://h:1?rank=0", "gloo://h:1?size=2", "gloo://h:1?rank=2&size=2",
        "gloo://h:1?rank=0&size=1&x", "gloo://h:1?rank=0&rank=1&size=2",
        "gloo://h:1?rank=0&size=1&a=%2"}) {
    expect_message([&] { parse_url(url); }, {std::string("\"") + url + "\""});
  }
  expect_message([] { parse_url("gloo://h:1?rank=0&size=0"); }, {"size=0"});
  expect_message([] { parse_url("gloo://h:1?rank=0&size=two"); }, {"size", "two"});
  expect_message([] { parse_url("gloo://h:1?rank=0&size=1&timeout=0"); }, {"timeout=0"});
}

// Paddle#37951: a mistyped backend is an error that says what there is.
TEST(Create, AnUnknownSchemeListsTheKnownOnes) {
  register_backend("alpha", [](const Endpoint&) { return std::unique_ptr<Comm>(); });
  register_backend("beta", [](const Endpoint&) { return std::unique_ptr<Comm>(); });
  expect_message([] { create("glo://h:1?rank=0&size=1"); }, {"glo://", "alpha://", "beta://"});
}

TEST(Create, TheFactoryOfTheSchemeGetsTheEndpoint) {
  Endpoint seen;
  register_backend("gamma", [&](const Endpoint& e) {
    seen = e;
    return std::unique_ptr<Comm>();
  });
  create("gamma://h:1?rank=1&size=2&x=y");
  EXPECT_EQ(seen.rank, 1);
  EXPECT_EQ(seen.options.at("x"), "y");
}

// An option of create's own: no backend sees it.
TEST(Create, TraceIsForEveryBackend) {
  const std::string directory = std::string(testing::TempDir()) + "/create.traces";
  std::filesystem::remove_all(directory);
  register_backend("epsilon", [](const Endpoint& e) {
    EXPECT_TRUE(e.options.empty());
    return std::move(local::make_world(1)[0]);
  });
  for (const std::string& option : {std::string(), "&trace=" + directory}) {
    const auto comm = create("epsilon://h:1?rank=0&size=1" + option);
    comm->abort("enough");
    EXPECT_THROW(comm->barrier().wait(), CommError);
    EXPECT_EQ(std::filesystem::exists(directory), !option.empty());
  }
}

TEST(Create, WhatItMakesIsTheRootOfTheContextWhileItLives) {
  register_backend("delta", [](const Endpoint&) { return std::move(local::make_world(1)[0]); });
  const auto first = create("delta://h:1?rank=0&size=1");
  EXPECT_EQ(root(), first.get());
  {
    const auto second = create("delta://h:1?rank=0&size=1");
    EXPECT_EQ(root(), second.get());
    Context other;
    const ContextScope scope(other);
    EXPECT_EQ(root(), nullptr);
  }
  EXPECT_EQ(root(), nullptr);
}

TEST(EndpointOf, NoLauncherIsALocalWorldOfOne) {
  const Endpoint e = endpoint_of({});
  EXPECT_EQ(e.scheme, "local");
  EXPECT_EQ(e.size, 1);
}

TEST(EndpointOf, TheLaunchersStoreIsUsedUnlessTheUrlHasOne) {
  Environment v;
  v.launched = true;
  v.rank = 1;
  v.size = 2;
  v.generation = 7;
  v.store = "node0:4001";
  Endpoint e = endpoint_of(v);
  EXPECT_EQ(e.scheme, "gloo");
  EXPECT_EQ(e.rank, 1);
  EXPECT_EQ(e.size, 2);
  EXPECT_EQ(e.generation, 7);
  EXPECT_EQ(e.options.at("store"), "node0:4001");
  v.comm = "ucx";
  EXPECT_EQ(endpoint_of(v).scheme, "ucx");
  v.comm = "gloo://other:1?liveness=3";
  e = endpoint_of(v);
  EXPECT_EQ(e.host, "other");
  EXPECT_EQ(e.options.count("store"), 0U);
  EXPECT_EQ(e.options.at("liveness"), "3");
}

TEST(EndpointOf, WhereARankIsReachedIsTheUrlsOrTheEnvironments) {
  Environment v;
  v.launched = true;
  v.store = "node0:1";
  v.interface = "eth1";
  EXPECT_EQ(endpoint_of(v).options.at("interface"), "eth1");
  v.comm = "gloo://?address=10.0.0.7";
  EXPECT_EQ(endpoint_of(v).options.count("interface"), 0U);
  EXPECT_EQ(endpoint_of(v).options.at("address"), "10.0.0.7");
  v.comm = "local";
  EXPECT_EQ(endpoint_of(v).options.count("interface"), 0U);
}

TEST(EndpointOf, TwoAnswersOrNoStoreAreRefused) {
  Environment v;
  v.launched = true;
  v.size = 2;
  expect_message([&] { endpoint_of(v); }, {"DTENSOR_STORE", "MASTER_ADDR"});
  v.comm = "gloo://other:1?rank=0";
  expect_message([&] { endpoint_of(v); }, {"rank="});
}

}  // namespace
}  // namespace dtensor::comm
