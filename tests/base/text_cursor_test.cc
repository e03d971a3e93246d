#include "dtensor/base/text_cursor.h"

#include <gtest/gtest.h>

#include <string>

namespace dtensor {
namespace {

TEST(TextCursor, ReadsNamesNumbersAndSigns) {
  TextCursor in("tp.x-1=-42,7", "text");
  EXPECT_EQ(in.name("a name"), "tp.x-1");
  in.expect('=');
  EXPECT_EQ(in.number("a number"), -42);
  EXPECT_TRUE(in.eat(','));
  EXPECT_FALSE(in.eat(','));
  EXPECT_EQ(in.number("a number"), 7);
  EXPECT_TRUE(in.at_end());
  in.expect_end();
}

TEST(TextCursor, ErrorsNameTheTextTheSpotAndWhatWasExpected) {
  TextCursor in("ab=x", "mesh");
  in.name("a name");
  in.expect('=');
  try {
    in.number("a size");
    FAIL();
  } catch (const ArgumentError& e) {
    EXPECT_EQ(std::string(e.what()), "mesh \"ab=x\": expected a size at character 4, found \"x\"");
  }
  TextCursor empty("", "mesh");
  EXPECT_THROW(empty.name("a name"), ArgumentError);
  EXPECT_THROW(empty.number("a size"), ArgumentError);
  EXPECT_THROW(empty.expect(':'), ArgumentError);
  TextCursor digits("9a", "mesh");
  EXPECT_THROW(digits.name("a name"), ArgumentError);
  TextCursor large("9223372036854775808", "mesh");
  EXPECT_THROW(large.number("a size"), ArgumentError);
}

}  // namespace
}  // namespace dtensor
