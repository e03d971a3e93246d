// PyPI's safetensors reads every file that this library writes, this library reads what that one
// writes, and takes nothing that the other refuses. By hand:
//   bazel test --test_env=PYTHON=VENV/bin/python //tests/checkpoint:safetensors_of_pypi_test

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/convert.h"
#include "dtensor/checkpoint/open_stored.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/subprocess.h"

namespace dtensor::checkpoint {
namespace {

using testing::Bag;
using testing::read_file;
using testing::run_ranks;
using testing::TemporaryDirectory;
using testing::write_file;
using Json = nlohmann::json;

std::string hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto b = static_cast<unsigned char>(c);
    text += kDigits[b >> 4];
    text += kDigits[b & 15];
  }
  return text;
}

std::string bytes_at(const Json& header_entry, const std::string& file, size_t data_begin) {
  const size_t begin = header_entry["data_offsets"][0];
  const size_t end = header_entry["data_offsets"][1];
  return file.substr(data_begin + begin, end - begin);
}

// What a file holds, by a reader that trusts it.
Json described(const std::string& path) {
  const std::string file = read_file(path);
  size_t length = 0;
  for (int i = 7; i >= 0; --i) {
    length = length << 8 | static_cast<unsigned char>(file[static_cast<size_t>(i)]);
  }
  const Json header = Json::parse(file.substr(8, length));
  Json out = {{"metadata", nullptr}, {"tensors", Json::object()}};
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      out["metadata"] = entry;
    } else {
      out["tensors"][name] = {{"dtype", entry["dtype"]},
                              {"shape", entry["shape"]},
                              {"bytes", hex(bytes_at(entry, file, 8 + length))}};
    }
  }
  return out;
}

// The same by this library.
Json read_by_us(const std::string& path) {
  const safetensors::File file(path);
  Json out = {{"metadata", nullptr}, {"tensors", Json::object()}};
  if (!file.metadata().empty()) out["metadata"] = file.metadata();
  for (const safetensors::Entry& e : file.entries()) {
    std::string bytes(static_cast<size_t>(e.end_bytes - e.begin_bytes), '\0');
    file.read(e.begin_bytes, std::as_writable_bytes(std::span(bytes)));
    out["tensors"][e.name] = {
        {"dtype", safetensors::format_name(e.dtype)}, {"shape", e.shape}, {"bytes", hex(bytes)}};
  }
  return out;
}

class OfPypi : public ::testing::Test {
 protected:
  OfPypi() {
    for (const char* part : {"ours", "theirs", "odd"}) {
      std::filesystem::create_directories(dir_ / part);
    }
  }

  void run_python() {
    const char* python = std::getenv("PYTHON");
    if (python == nullptr) {
      throw std::runtime_error(
          "set PYTHON (--test_env=PYTHON=VENV/bin/python) to one that has torch and safetensors");
    }
    write_file(dir_ / "ours/expected.json", expected_.dump());
    const auto result =
        testing::run_process({python, "tests/checkpoint/safetensors_of_pypi.py", dir_.path()});
    ASSERT_EQ(result.status, 0) << result.out << result.err;
    std::cout << result.out;
  }
  // A file of ours that the other side is to read.
  void add(const std::string& path) {
    const std::string name = std::to_string(expected_.size()) + ".safetensors";
    std::filesystem::copy(path, dir_ / ("ours/" + name));
    expected_[name] = described(path);
  }
  void add_all_under(const std::string& directory) {
    for (const std::string& name : testing::files_under(directory)) {
      if (name.ends_with(".safetensors")) add(directory + "/" + name);
    }
  }

  TemporaryDirectory dir_;
  Json expected_ = Json::object();
};

std::vector<safetensors::Item> items_of_all_dtypes(std::string& memory) {
  std::vector<safetensors::Item> items;
  memory.resize(400);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<char>(i % 2);
  for (int i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{}, {0}, {3}, {2, 0, 4}, {5, 7}}) {
      const std::string name = std::string(name_of(dtype)) + " " + std::to_string(items.size());
      items.push_back({name, dtype, shape, memory.data()});
    }
  }
  for (const char* name : {"", "w#1", "\xc3\xa9 \x01 \"quoted\" \\ \xf0\x9f\x98\x80"}) {
    items.push_back({name, DType::kUInt8, {3}, memory.data()});
  }
  return items;
}

TEST_F(OfPypi, ReadsWhatThisLibraryWritesAndTheOtherWayRound) {
  std::string memory;
  const auto items = items_of_all_dtypes(memory);
  safetensors::write(dir_ / "a", items, {{"format", "pt"}, {"note", "a\nb"}});
  add(dir_ / "a");
  safetensors::write(dir_ / "b", items);
  add(dir_ / "b");
  safetensors::write(dir_ / "c", {}, {{"format", "pt"}});
  add(dir_ / "c");
  // A checkpoint's data files, split, and what becomes of it.
  run_ranks(3, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    Bag bag;
    bag.add("w", distribute(Tensor::arange(35).view({5, 7}), mesh, {Shard(0)}));
    bag.add("w#1", distribute(Tensor::full({200, 200}, 3), mesh, {Replicate()}));
    bag.add("b", distribute(Tensor::full({3}, 1, DType::kBool), mesh, {Replicate()}));
    bag.add("h", distribute(Tensor::full({7}, 2, DType::kBFloat16), mesh, {Shard(0)}));
    save(dir_ / "run", 1, {.model = bag}, {.file_bytes = 30'000});
    export_hugging_face(dir_ / "hf", bag);
  });
  write_hugging_face(open_stored(dir_ / "run"), dir_ / "shards", {.max_file_bytes = 1000});
  for (const char* part : {"run", "hf", "shards"}) add_all_under(dir_ / part);
  EXPECT_GT(expected_.size(), 10U);
  run_python();
  const Json theirs = Json::parse(read_file(dir_ / "theirs/expected.json"));
  for (const auto& [name, want] : theirs.items()) {
    EXPECT_EQ(read_by_us(dir_ / ("theirs/" + name)), want) << name;
  }
}

// Files with a byte changed, cut, or doubled in the header, and some that are odd on purpose.
TEST_F(OfPypi, RefusesNothingThatThisLibraryTakes) {
  std::string memory;
  auto items = items_of_all_dtypes(memory);
  items.resize(20);
  safetensors::write(dir_ / "good", items, {{"format", "pt"}});
  const std::string good = read_file(dir_ / "good");
  std::mt19937 random(5);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  int count = 0;
  const auto put = [&](const std::string& bytes) {
    write_file(dir_ / ("odd/" + std::to_string(count++) + ".safetensors"), bytes);
  };
  put(good);
  const std::string letters = "0123456789[]{},:\"\\ FIBuU-.e\xc3\x80";
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = good;
    const size_t at = below(i % 10 == 0 ? 8 : bytes.size());
    switch (i % 4) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8));
        break;
      case 1:
        bytes[at] = letters[below(letters.size())];
        break;
      case 2:
        bytes.erase(at, 1 + below(3));
        break;
      default:
        bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(40)));
    }
    // Of a header that changed its length, every other one says the right one.
    if (bytes.size() != good.size() && at >= 8 && i % 8 < 4) {
      size_t length = bytes.size() - good.size() + static_cast<unsigned char>(good[0]) +
                      256 * static_cast<size_t>(static_cast<unsigned char>(good[1]));
      for (size_t b = 0; b < 8; ++b) bytes[b] = static_cast<char>(length >> (8 * b));
    }
    put(bytes);
  }
  run_python();
  std::map<std::string, int> both;
  const Json verdicts = Json::parse(read_file(dir_ / "odd/accepted.json"));
  for (const auto& [name, accepted] : verdicts.items()) {
    bool taken = true;
    try {
      const safetensors::File file(dir_ / ("odd/" + name));
    } catch (const CheckpointError&) {
      taken = false;
    }
    EXPECT_TRUE(accepted || !taken) << name << ": " << read_file(dir_ / ("odd/" + name));
    ++both[std::string(taken ? "taken" : "refused") + " here, " +
           (accepted ? "accepted" : "refused") + " there"];
  }
  for (const auto& [what, n] : both) std::cout << n << " " << what << "\n";
  EXPECT_GT(both["taken here, accepted there"], 100);
  EXPECT_GT(both["refused here, refused there"], 100);
}

}  // namespace
}  // namespace dtensor::checkpoint
