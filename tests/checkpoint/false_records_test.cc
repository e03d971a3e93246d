// Records with a right CRC that say something else than what is true: somebody may have written
// them. Whatever they say, readers give an Error or a value, take no memory that they name, and
// write nowhere but into the model.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/attempt.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/checkpoint/open_stored.h"
#include "dtensor/checkpoint/record.h"
#include "dtensor/checkpoint/stored_data.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/sanitized.h"

namespace dtensor::checkpoint {
namespace {

using nlohmann::json;
using testing::Bag;
using testing::read_file;
using testing::run_ranks;
using testing::TemporaryDirectory;
using testing::write_file;

constexpr int kSamples = testing::kSanitized ? 600 : 2000;
constexpr size_t kFrontBytes = 30;  // {"crc32c":"........","record":
constexpr size_t kBackBytes = 2;    // } and a newline

class FalseRecords : public ::testing::Test {
 protected:
  FalseRecords() {
    run_ranks(2, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"x", 2}});
      Bag bag;
      const auto add = [&](const std::string& name, const Shape& shape, Placement p) {
        bag.add(name, distribute(Tensor::full(shape, 1), mesh, {p}));
      };
      add("w", {5, 4}, Shard(0));
      add("c", {3, 6}, Shard(1));
      add("r", {4}, Replicate());
      add("s", {}, Replicate());
      add("none", {0, 3}, Shard(1));
      save(dir_.path(), 1, {.model = bag}, {.replicas = Replicas::kCompared});
    });
    attempt_ = list_attempts(dir_.path()).front();
    for (int rank = 0; rank < 2; ++rank) {
      const std::string text = read_file(path_of(rank));
      bodies_.push_back(
          json::parse(text.substr(kFrontBytes, text.size() - kFrontBytes - kBackBytes)));
    }
  }

  std::string path_of(int rank) const { return attempt_.path + "/" + record_name(rank); }

  void write(int rank, const json& body) const {
    const std::string text = body.dump(-1, ' ', false, json::error_handler_t::replace);
    const std::vector<uint32_t> crc = {crc32c(bytes_of(text))};
    write_file(path_of(rank), R"({"crc32c":")" + hex_of(crc) + R"(","record":)" + text + "}\n");
  }

  // All values inside, the containers too.
  static void collect(json& value, std::vector<json*>& into) {
    for (json& inner : value) {
      into.push_back(&inner);
      if (inner.is_structured()) collect(inner, into);
    }
  }

  json nonsense(const std::vector<json*>& all) {
    static const std::vector<json> kValues = {0,
                                              1,
                                              2,
                                              -1,
                                              3,
                                              4,
                                              6,
                                              8191,
                                              int64_t{1} << 20,
                                              int64_t{1} << 31,
                                              int64_t{1} << 40,
                                              int64_t{1} << 62,
                                              INT64_MAX,
                                              UINT64_MAX,
                                              "",
                                              "w",
                                              "c",
                                              "r",
                                              "..",
                                              "../x",
                                              "rank-00000.safetensors",
                                              "F32",
                                              "U8",
                                              "BOOL",
                                              "F64",
                                              nullptr,
                                              true,
                                              1.5,
                                              json::array(),
                                              json::object(),
                                              "rank-00001.record.json",
                                              json::array({0, 0}),
                                              json::array({5, 4}),
                                              json::array({INT64_MAX, 0}),
                                              "00000000"};
    if (random_() % 3 == 0) return *all[random_() % all.size()];
    return kValues[random_() % kValues.size()];
  }

  void spoil(json& body) {
    std::vector<json*> all;
    collect(body, all);
    json& at = *all[random_() % all.size()];
    switch (random_() % 5) {
      case 0:  // something once more, or less
        if (at.is_array() && !at.empty()) {
          if (random_() % 2 == 0) {
            at.push_back(json(at[random_() % at.size()]));
          } else {
            at.erase(random_() % at.size());
          }
          return;
        }
        [[fallthrough]];
      case 1:
        if (at.is_number_integer() && !at.is_number_unsigned()) {
          at = at.get<int64_t>() + (random_() % 2 == 0 ? 1 : -1);
          return;
        }
        [[fallthrough]];
      default: {
        const json other = nonsense(all);
        at = other;
      }
    }
  }

  // Everything that reads an attempt; only Errors come out of it.
  void read_all() {
    const auto attempted = [&](const auto& f) {
      try {
        f();
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()), "");
      }
    };
    const Examined examined = examine(attempt_);
    if (examined.is_complete()) (void)examine_data(examined.contents);
    attempted([&] { open_stored(dir_.path()); });
    Bag bag;
    std::vector<nn::Parameter> values;
    for (const auto& [name, shape] : std::vector<std::pair<std::string, Shape>>{
             {"w", {5, 4}}, {"c", {3, 6}}, {"r", {4}}, {"s", {}}, {"none", {0, 3}}}) {
      values.push_back(bag.add(name, DTensor(Tensor::full(shape, 7))));
    }
    attempted([&] {
      const auto step = load(dir_.path(), {.model = bag}, {.unexpected = Unexpected::kIgnore});
      loaded_ += step ? 1 : 0;
    });
    for (const nn::Parameter& p : values) {
      for (const float v : p.value().local_tensor().to_vector<float>()) {
        // Of the files, or as it was: nothing is made up. A false offset may split an element.
        if (v != 1 && v != 7) ++other_values_;
      }
    }
  }

  TemporaryDirectory dir_;
  Attempt attempt_;
  std::vector<json> bodies_;
  std::mt19937 random_{17};  // NOLINT(bugprone-random-generator-seed)
  int loaded_ = 0;
  int other_values_ = 0;
};

TEST_F(FalseRecords, GiveAnErrorOrAValue) {
  for (int sample = 0; sample < kSamples; ++sample) {
    SCOPED_TRACE(sample);
    json body = bodies_[static_cast<size_t>(sample % 2)];
    for (int n = 1 + static_cast<int>(random_() % 3); n > 0; --n) spoil(body);
    write(sample % 2, body);
    read_all();
    write(sample % 2, bodies_[static_cast<size_t>(sample % 2)]);
  }
  // Some lies change nothing that matters; most are found.
  EXPECT_GT(loaded_, 0);
  EXPECT_LT(loaded_, kSamples / 2);
  EXPECT_EQ(other_values_, 0);
}

// What is no regular file, where a file should be: neither waited for nor followed for ever.
TEST_F(FalseRecords, WhatIsNoFileIsRefused) {
  const std::string good = read_file(path_of(1));
  const std::string data = attempt_.path + "/" + data_file_name(1);
  const auto expect_refused = [&](const char* what) {
    EXPECT_FALSE(examine(attempt_).is_complete()) << what;
    EXPECT_THROW(open_stored(attempt_.path), CheckpointError) << what;
  };
  for (const std::string& path : {path_of(1), data}) {
    const std::string bytes = read_file(path);
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    expect_refused("a directory");
    std::filesystem::remove(path);
    std::filesystem::create_symlink(path, path);
    expect_refused("a link to itself");
    std::filesystem::remove(path);
    std::filesystem::create_symlink("/dev/zero", path);
    expect_refused("a device");
    std::filesystem::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    expect_refused("a pipe");
    std::filesystem::remove(path);
    write_file(path, bytes);
  }
  EXPECT_TRUE(examine(attempt_).is_complete());
}

}  // namespace
}  // namespace dtensor::checkpoint
