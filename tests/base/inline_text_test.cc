#include "dtensor/base/inline_text.h"

#include <gtest/gtest.h>

#include <string>

#include "dtensor/base/error.h"

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

TEST(InlineText, RefusesWhatDoesNotFit) {
  Text text = "12345678";
  EXPECT_THROW(text += '9', InternalError);
  EXPECT_EQ(text, "12345678");
  EXPECT_THROW(Text("123456789"), InternalError);
}

}  // namespace
}  // namespace dtensor
