#include "dtensor/tools/mesh_drawing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace dtensor::tools {
namespace {

std::string draw(const std::string& mesh) {
  return draw_mesh(parse_mesh(mesh), [](int rank) { return std::string(rank % 3, '#'); });
}

TEST(MeshDrawing, IsAGridOfTheLastTwoDims) {
  EXPECT_EQ(draw("dp=2,tp=2@3,1,0,2"),
            "        tp 0   tp 1\n"
            "  dp 0  3:     1: #\n"
            "  dp 1  0:     2: ##\n");
  EXPECT_EQ(draw("pp=2,dp=1,tp=2"),
            "  pp 0\n"
            "        tp 0  tp 1\n"
            "  dp 0  0:    1: #\n"
            "  pp 1\n"
            "        tp 0   tp 1\n"
            "  dp 0  2: ##  3:\n");
}

TEST(MeshDrawing, WrapsAMeshOfOneDim) {
  EXPECT_EQ(draw("x=3"), "  x 0-2  0:     1: #   2: ##\n");
  EXPECT_EQ(draw(""), "    0:\n");
  const std::string text = draw("x=40");
  EXPECT_GT(std::ranges::count(text, '\n'), 1) << text;
  EXPECT_EQ(text.find("more"), std::string::npos) << text;
}

TEST(MeshDrawing, SaysHowManyRanksAreNotDrawn) {
  const std::string text = draw("a=3,b=100,c=100");
  EXPECT_NE(text.find("  and 29616 more ranks\n"), std::string::npos) << text;  // 3 of 16 by 8
  EXPECT_LT(std::ranges::count(text, '\n'), 70);
  EXPECT_EQ(std::ranges::count(text, '.'), 3 * 3 * 16);
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    EXPECT_LE(end - at, 130U);
    at = end + 1;
  }
}

}  // namespace
}  // namespace dtensor::tools
