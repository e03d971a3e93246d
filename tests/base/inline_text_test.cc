#include "dtensor/base/inline_text.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace dtensor {
namespace {

using Text = InlineText<8>;

TEST(InlineText, ReadsLikeItsText) {
  const std::string source = "mk,kn";
  Text text = source;
  EXPECT_EQ(text, "mk,kn");
  EXPECT_EQ(text, source);
  EXPECT_EQ(text.find('k'), 1U);
  EXPECT_EQ(text.substr(3), "kn");
  text += '-';
  EXPECT_EQ("<" + text + ">", "<mk,kn->");
  EXPECT_EQ(text + text, "mk,kn-mk,kn-");
  const Text copy = text;
  text.clear();
  EXPECT_TRUE(text.empty());
  EXPECT_FALSE(copy == text);
  text = copy;
  EXPECT_EQ(std::string(text), "mk,kn-");
}

TEST(InlineText, GoesOnBeyondWhatItHolds) {
  Text text = "12345678";
  text += std::string_view();
  text += '9';
  EXPECT_EQ(text, "123456789");
  Text copy = text;
  copy[8] = 'x';
  copy += "0";
  EXPECT_EQ(copy, "12345678x0");
  EXPECT_EQ(copy.size(), 10U);
  EXPECT_EQ(text, "123456789");
  text = Text("short");
  EXPECT_EQ(text, "short");
  copy.clear();
  EXPECT_TRUE(copy.empty());
  EXPECT_EQ(Text("123456789"), "123456789");
}

}  // namespace
}  // namespace dtensor
