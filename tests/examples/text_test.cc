// The rows of a text, against the rule written out by hand.

#include "dtensor/examples/llama/text.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <vector>

#include "dtensor/base/error.h"

namespace dtensor::examples {
namespace {

std::string file_with(const std::string& text) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/text";
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(Text, RowsFollowEachOtherAndWrapAround) {
  const Text text(file_with("abcdefg"));
  const Batch first = text.batch(0, 2, 2);
  EXPECT_EQ(first.tokens.to_vector<int64_t>(), (std::vector<int64_t>{'a', 'b', 'c', 'd'}));
  EXPECT_EQ(first.targets.to_vector<int64_t>(), (std::vector<int64_t>{'b', 'c', 'd', 'e'}));
  const Batch second = text.batch(1, 2, 2);
  EXPECT_EQ(second.tokens.to_vector<int64_t>(), (std::vector<int64_t>{'e', 'f', 'g', 'a'}));
  EXPECT_EQ(second.targets.to_vector<int64_t>(), (std::vector<int64_t>{'f', 'g', 'a', 'b'}));
  EXPECT_EQ(second.tokens.shape(), (Shape{2, 2}));
  EXPECT_EQ(text.largest(), 'g');
}

TEST(Text, BytesAreUnsigned) { EXPECT_EQ(Text(file_with("\xff\x01")).largest(), 255); }

TEST(Text, RefusesAFileThatIsEmptyOrNotThere) {
  EXPECT_THROW(Text(file_with("")), ArgumentError);
  EXPECT_THROW(Text("/nonexistent/text"), ArgumentError);
}

}  // namespace
}  // namespace dtensor::examples
