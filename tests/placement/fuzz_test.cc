// Mutated layout texts and random requests of layouts and plans: each gives a result, which is
// then checked for what must hold of any, or a dtensor::Error. Run it under the sanitizers:
//   bazel test --config=asan --config=ubsan_clang //tests/placement:fuzz_test

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "dtensor/placement/holders.h"
#include "dtensor/placement/reshard_plan.h"

namespace dtensor {
namespace {

constexpr int64_t kFar = (int64_t{1} << 62) - 1;

class Fuzz {
 public:
  explicit Fuzz(unsigned seed) : random_(seed) {}

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  template <class T>
  const T& one_of(const std::vector<T>& all) {
    return all[static_cast<size_t>(below(static_cast<int64_t>(all.size())))];
  }

  // Near sensible, and now and then at the ends of what the type holds.
  int64_t number(int64_t n) {
    static const std::vector<int64_t> kEnds = {-1,   0,        1,         INT32_MAX, INT32_MIN,
                                               kFar, kFar + 1, INT64_MAX, INT64_MIN, 1 << 20};
    return below(20) == 0 ? one_of(kEnds) : below(n);
  }

  Shape shape() {
    static const std::vector<Shape> kAll = {{},
                                            {0},
                                            {1},
                                            {5},
                                            {64, 3},
                                            {4, 0, 7},
                                            {kFar},
                                            {kFar, 1},
                                            {kFar, 0},
                                            {1 << 20, 1 << 20},
                                            {2, 3, 5, 7},
                                            {1, 1, 1, 1, 1, 1, 1, 13},
                                            {kFar + 1, 1},
                                            {kFar, kFar, 0},
                                            {INT64_MAX}};
    return one_of(kAll);
  }

  std::string text() {
    static const std::vector<std::string> kGood = {
        "dp=2,tp=2@3,1,0,2:S(0),S(0);order=0:tp,dp;unit=0:tp:32;weights=tp:2,1",
        "a=2,b=3,c=2:S(1),P(sum),S(0);unit=1:a:3;unit=0:c:2",
        "x=4@4-7:S(-1);weights=x:0,1,2,1",
        "a=1,b=2,c=1,d=3,e=1,f=2:S(0),S(0),R,S(0),P(max),S(1);order=0:d,b,a;weights=f:1,1",
        "x=3:P(prod)",
        "x=4096:S(0)",
        ":"};
    static const std::string kLetters = "dtpxab=,@-0123456789:;S()RPsumprodmaxorderunitweights";
    std::string text = one_of(kGood);
    for (int64_t n = below(5); n > 0; --n) {
      const auto at = static_cast<size_t>(below(static_cast<int64_t>(text.size())));
      switch (below(6)) {
        case 0:
          text[at] = kLetters[static_cast<size_t>(below(static_cast<int64_t>(kLetters.size())))];
          break;
        case 1:
          text.erase(at, static_cast<size_t>(below(6) + 1));
          break;
        case 2: {
          const auto from = static_cast<size_t>(below(static_cast<int64_t>(text.size())));
          const std::string piece = text.substr(from, static_cast<size_t>(below(12)));
          text.insert(at, piece);
          break;
        }
        case 3:
          text.insert(at, std::to_string(number(9)));
          break;
        case 4: {
          const std::string& other = one_of(kGood);
          text = text.substr(0, at) + other.substr(std::min(at, other.size()));
          break;
        }
        default:
          text.insert(at, 1, static_cast<char>(below(256)));
      }
      if (text.empty()) text = ":";
    }
    return text;
  }

  Placement placement() {
    const auto kind = below(3);
    if (kind == 0) return Replicate();
    if (kind == 1) return Shard(static_cast<int>(number(4)));
    return Partial(static_cast<PartialOp>(below(4)));
  }

  // A layout made by requests rather than text, on the mesh of another where one is given.
  Layout layout(const std::optional<MeshLayout>& on, const Shape& shape) {
    std::vector<MeshDim> dims;
    for (int64_t n = below(5); n > 0; --n) {
      MeshDim& dim =
          dims.emplace_back(MeshDim{std::string(1, static_cast<char>('a' + dims.size())),
                                    static_cast<int>(below(20) == 0 ? number(3) : below(3) + 1)});
      if (below(4) == 0) {
        for (int64_t k = number(20) == 0 ? number(4) : dim.size; k > 0 && k < 9; --k)
          dim.weights.push_back(number(3));
      }
    }
    Layout made = Layout::replicated(on ? *on : MeshLayout(dims), shape);
    for (int64_t n = below(5); n > 0; --n) {
      const auto m = static_cast<int>(number(made.mesh().ndim() + 1));
      const Placement p = placement();
      made = made.with(m, p, p.is_shard() ? number(4) : 0);
    }
    return made;
  }

 private:
  std::mt19937_64 random_;
};

void check_box(const Box& box, const Shape& shape) {
  ASSERT_EQ(box.offset.ndim(), shape.ndim());
  for (int d = 0; d < shape.ndim(); ++d) {
    ASSERT_GE(box.offset[d], 0);
    ASSERT_GE(box.size[d], 0);
    ASSERT_LE(box.offset[d], shape[d]);
    ASSERT_LE(box.size[d], shape[d] - box.offset[d]);
  }
}

// Every query of a layout: by ranks and elements that may not be there.
void ask(const Layout& layout, Fuzz& fuzz) {
  ASSERT_EQ(parse_layout(to_string(layout), layout.shape()), layout) << to_string(layout);
  ASSERT_EQ(parse_layout(to_string(layout), layout.shape()).hash(), layout.hash());
  ASSERT_TRUE(equal_boundaries(layout, layout));
  const MeshLayout& mesh = layout.mesh();
  for (int i = 0; i < 4; ++i) {
    const auto index = static_cast<int>(fuzz.below(mesh.size()));
    const int rank = mesh.ranks()[static_cast<size_t>(index)];
    const Box box = layout.box_of(rank);
    check_box(box, layout.shape());
    if (mesh.size() > 4096 && layout.spec().is_replicated()) continue;
    const std::vector<int> same = replicas(layout, rank);
    ASSERT_EQ(std::ranges::count(same, rank), 1);
    ASSERT_EQ(layout.box_of(same.front()), box);
    ASSERT_EQ(layout.box_of(same.back()), box);
    if (box.empty() || box.offset.ndim() == 0) continue;
    ASSERT_EQ(holders(layout, box.offset), same) << to_string(layout);
  }
  try {
    replicas(layout, static_cast<int>(fuzz.number(8)));
  } catch (const Error&) {
  }
  Shape index = layout.shape();
  for (int64_t& at : index) at = fuzz.number(5);
  try {
    const auto found = holders(layout, index);
    ASSERT_FALSE(found.empty());
  } catch (const ArgumentError&) {
  }
}

TEST(Fuzz, MutatedTextsGiveALayoutOrAnError) {
  Fuzz fuzz(5000);
  int read = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::string text = fuzz.text();
    std::optional<Layout> layout;
    try {
      layout = parse_layout(text, fuzz.shape());
    } catch (const Error& e) {
      ASSERT_STRNE(e.what(), "");
      continue;
    }
    ++read;
    ASSERT_NO_THROW(ask(*layout, fuzz)) << text;
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(read, 800);
}

TEST(Fuzz, RandomRequestsGiveALayoutOrAnError) {
  Fuzz fuzz(77);
  int made = 0;
  for (int i = 0; i < 5000; ++i) {
    std::optional<Layout> layout;
    try {
      layout = fuzz.layout(std::nullopt, fuzz.shape());
    } catch (const Error& e) {
      ASSERT_STRNE(e.what(), "");
      continue;
    }
    ++made;
    ASSERT_NO_THROW(ask(*layout, fuzz)) << to_string(*layout);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(made, 1000);
}

// What a plan tells of itself and of every rank.
void ask(const ReshardPlan& plan) {
  int64_t payload = 0;
  for (const ReshardStep& step : plan.steps()) payload += step.payload;
  ASSERT_EQ(payload, plan.payload());
  ASSERT_LE(plan.payload_minimum(), plan.payload());
  ASSERT_EQ(plan.countable_minimum().value_or(plan.payload_minimum()), plan.payload_minimum());
  int64_t most = 0;
  const std::vector<int> ranks = plan.ranks();
  const std::vector<RankTraffic> all = plan.traffic();
  ASSERT_EQ(ranks.size(), all.size());
  for (size_t r = 0; r < all.size(); ++r) {
    const RankTraffic& rank = all[r];
    ASSERT_EQ(plan.traffic(ranks[r]), rank);
    ASSERT_GE(rank.sent, 0);
    ASSERT_GE(rank.received, 0);
    for (size_t s = 0; s < plan.steps().size(); ++s) plan.rank_step(static_cast<int>(s), ranks[r]);
    most = std::max(most, rank.received);
  }
  ASSERT_EQ(most, plan.most_received());
  for (const BoxMove& move : plan.messages()) {
    check_box(move.box, plan.from().shape());
    ASSERT_NE(move.src, move.dst);
  }
}

TEST(Fuzz, RandomPairsGiveAPlanOrAnError) {
  Fuzz fuzz(4242);
  int planned = 0;
  for (int i = 0; i < 10000; ++i) {
    try {
      const Shape shape = fuzz.shape();
      const Layout from =
          fuzz.below(2) == 0 ? parse_layout(fuzz.text(), shape) : fuzz.layout(std::nullopt, shape);
      if (from.mesh().size() > 64) continue;
      const bool two_meshes = fuzz.below(3) == 0;
      const Layout to = fuzz.layout(two_meshes ? std::nullopt : std::optional(from.mesh()),
                                    fuzz.below(20) == 0 ? fuzz.shape() : shape);
      const ReshardPlan made = plan(from, to);
      ASSERT_NO_FATAL_FAILURE(ask(made)) << to_string(from) << " -> " << to_string(to);
      ++planned;
    } catch (const Error& e) {
      ASSERT_STRNE(e.what(), "");
    }
  }
  EXPECT_GT(planned, 600);
}

}  // namespace
}  // namespace dtensor
