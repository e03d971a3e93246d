// Replays the fuzzer's corpus: inputs by hand, and those that it found worth keeping.

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <vector>

#include "dtensor/tests/checkpoint/reader_fuzz.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor {
namespace {

std::vector<std::string> corpus() {
  std::vector<std::string> inputs;
  for (const auto& e : std::filesystem::directory_iterator("tests/data/fuzz")) {
    inputs.push_back(testing::read_file(e.path()));
  }
  return inputs;
}

void replay(const std::string& input) {
  fuzz_one({reinterpret_cast<const uint8_t*>(input.data()), input.size()});
}

TEST(FuzzCorpus, EveryInputIsReadOrRefused) {
  const auto inputs = corpus();
  ASSERT_GT(inputs.size(), 10U);
  for (const std::string& input : inputs) replay(input);
}

// What the fuzzer does, without its guidance.
TEST(FuzzCorpus, MutationsToo) {
  const auto inputs = corpus();
  std::mt19937 random(5);
  for (int round = 0; round < 20000; ++round) {
    std::string input = inputs[random() % inputs.size()];
    for (size_t n = random() % 4; n > 0 && input.size() > 2; --n) {
      const size_t at = 1 + random() % (input.size() - 1);
      const std::string& other = inputs[random() % inputs.size()];
      switch (random() % 3) {
        case 0:
          input[at] = static_cast<char>(input[at] ^ (1 << random() % 8));
          break;
        case 1:
          input.erase(at, 1 + random() % 8);
          break;
        default:
          input.insert(at, other.substr(random() % other.size(), random() % 30));
      }
    }
    replay(input);
  }
}

}  // namespace
}  // namespace dtensor
