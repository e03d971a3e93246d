// Every C++ block of README.md and docs/ stands in a source file that is compiled: its lines,
// without indentation and blank ones, are consecutive lines of one. The block of README.md is the
// whole of the quickstart.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace dtensor::testing {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

std::string trimmed(const std::string& line) {
  const size_t first = line.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

struct Block {
  std::string where;
  Lines lines;
};

std::vector<Block> cpp_blocks(const fs::path& page) {
  std::vector<Block> blocks;
  std::ifstream in(page);
  std::string line;
  bool inside = false;
  for (int n = 1; std::getline(in, line); ++n) {
    if (!inside && line == "```cpp") {
      blocks.push_back({page.string() + ":" + std::to_string(n), {}});
      inside = true;
    } else if (inside && line == "```") {
      inside = false;
    } else if (inside && !trimmed(line).empty()) {
      blocks.back().lines.push_back(trimmed(line));
    }
  }
  return blocks;
}

Lines source_lines(const fs::path& path) {
  Lines lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!trimmed(line).empty()) lines.push_back(trimmed(line));
  }
  return lines;
}

bool stands_in(const Lines& block, const Lines& source) {
  return std::search(source.begin(), source.end(), block.begin(), block.end()) != source.end();
}

TEST(Docs, EveryCppBlockIsCompiled) {
  std::vector<Lines> sources;
  for (const char* root : {"tests/docs", "examples"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      if (entry.path().extension() == ".cc") sources.push_back(source_lines(entry.path()));
    }
  }
  std::vector<fs::path> pages = {"README.md"};
  for (const auto& entry : fs::directory_iterator("docs")) pages.push_back(entry.path());
  int seen = 0;
  for (const auto& page : pages) {
    for (const Block& block : cpp_blocks(page)) {
      ++seen;
      EXPECT_FALSE(block.lines.empty()) << block.where;
      EXPECT_TRUE(std::any_of(sources.begin(), sources.end(),
                              [&](const Lines& s) { return stands_in(block.lines, s); }))
          << block.where << ": stands in no file under tests/docs or examples";
    }
  }
  EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace dtensor::testing
