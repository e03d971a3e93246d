// What `plan --explain` lists of a step adds up to the bytes that the step says it sends.

#include "dtensor/tools/plan_explain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace dtensor::tools {
namespace {

// The bytes in the header of each step, and those of the lines below it.
struct Sums {
  std::vector<int64_t> said;
  std::vector<int64_t> listed;
};

Sums sums_of(const std::string& text) {
  static const std::regex kStep("^step \\d+ of \\d+: .*, (\\d+) B, .* us$");
  static const std::regex kLocal("^step \\d+ of \\d+: local, no message$");
  static const std::regex kMessage("^    \\d+ -> \\d+  \\[.*\\], (\\d+) B$");
  static const std::regex kTerm("^    \\{([\\d,]+)\\} -> \\d+  .*, (\\d+) B a term$");
  static const std::regex kAll("^    \\{.*\\} all: .* of (\\d+) terms of .*, (\\d+) B each$");
  Sums sums;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch m;
    if (std::regex_match(line, m, kStep)) {
      sums.said.push_back(std::stoll(m[1]));
      sums.listed.push_back(0);
    } else if (std::regex_match(line, kLocal)) {
      sums.said.push_back(0);
      sums.listed.push_back(0);
    } else if (std::regex_match(line, m, kMessage)) {
      sums.listed.back() += std::stoll(m[1]);
    } else if (std::regex_match(line, m, kTerm)) {
      const std::string group = m[1];
      sums.listed.back() += std::ranges::count(group, ',') * std::stoll(m[2]);
    } else if (std::regex_match(line, m, kAll)) {
      sums.listed.back() += 2 * (std::stoll(m[1]) - 1) * std::stoll(m[2]);
    }
  }
  return sums;
}

Layout random_layout(const MeshLayout& mesh, const Shape& shape, PartialOp op,
                     std::mt19937& random) {
  Layout layout = Layout::replicated(mesh, shape);
  for (int n = 0; n < 4; ++n) {
    const auto m = static_cast<int>(random() % static_cast<unsigned>(mesh.ndim()));
    switch (random() % 4) {
      case 0:
        layout = layout.with(m, Partial(op));
        break;
      case 1:
        layout = layout.with(m, Replicate());
        break;
      default: {
        const auto d = static_cast<int>(random() % static_cast<unsigned>(shape.ndim()));
        layout = layout.with(m, Shard(d), static_cast<int64_t>(random() % 2) + 1);
      }
    }
  }
  return layout;
}

TEST(PlanExplain, ListsWhatEachStepSends) {
  const std::vector<MeshLayout> meshes = {parse_mesh("x=3"), parse_mesh("a=2,b=2@3,1,0,2"),
                                          parse_mesh("a=1,b=2,c=2"), parse_mesh("y=3@1-3")};
  const std::vector<Shape> shapes = {{5}, {4, 3}, {0, 2}, {1, 1}};
  std::mt19937 random(7);
  int checked = 0;
  for (int i = 0; i < 1500; ++i) {
    const MeshLayout& mesh = meshes[random() % meshes.size()];
    const MeshLayout& other = random() % 3 == 0 ? meshes[random() % meshes.size()] : mesh;
    const Shape& shape = shapes[random() % shapes.size()];
    const auto op = static_cast<PartialOp>(random() % 4);
    const Layout from = random_layout(mesh, shape, op, random);
    const Layout to = random_layout(other, shape, op, random);
    const ReshardPlan made = plan(from, to);
    const std::string text = explain(made, DType::kFloat64);
    const Sums sums = sums_of(text);
    ASSERT_EQ(sums.said.size(), made.steps().size()) << text;
    if (text.find(" more\n") != std::string::npos) continue;  // not all is listed
    ++checked;
    EXPECT_EQ(sums.said, sums.listed) << text;
    for (size_t s = 0; s < sums.said.size(); ++s) {
      EXPECT_EQ(sums.said[s], made.steps()[s].payload * 8) << text;
    }
  }
  EXPECT_GT(checked, 1000);
}

}  // namespace
}  // namespace dtensor::tools
