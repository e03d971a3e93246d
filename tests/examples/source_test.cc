// The model's source is single-device code: it names no mesh, rank or placement.

#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>
#include <string>

namespace dtensor::testing {
namespace {

TEST(ModelSource, NamesNoMeshRankOrPlacement) {
  const std::regex named("mesh|rank\\b|placement|Shard|Replicate|Partial|redistribute|fsdp|tp::",
                         std::regex::icase);
  for (const char* path : {"examples/llama/model.h", "examples/llama/model.cc"}) {
    std::ifstream in(path);
    ASSERT_TRUE(in) << path;
    std::string line;
    for (int n = 1; std::getline(in, line); ++n) {
      const std::string code = line.substr(0, line.find("//"));
      EXPECT_FALSE(std::regex_search(code, named)) << path << ":" << n << ": " << line;
    }
  }
}

}  // namespace
}  // namespace dtensor::testing
