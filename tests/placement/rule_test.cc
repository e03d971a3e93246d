#include "dtensor/placement/rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/placement/apply_rule.h"
#include "dtensor/placement/rule_fix.h"

namespace dtensor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const MeshLayout& tp4() {
  static const MeshLayout mesh({{"tp", 4}});
  return mesh;
}
const MeshLayout& tp2() {
  static const MeshLayout mesh({{"tp", 2}});
  return mesh;
}
const MeshLayout& grid() {
  static const MeshLayout mesh({{"dp", 2}, {"tp", 2}});
  return mesh;
}

Rule matmul_rule() {
  return Rule{.op = "matmul", .letters = "mk,kn->mn", .linear = {{0}, {1}}, .names = {"x", "w"}};
}
Rule add_rule() {
  return Rule{.op = "add", .letters = "a,a->a", .linear = {{0, 1}}, .names = {"x", "y"}};
}

Layout on(const MeshLayout& mesh, const Shape& shape, std::initializer_list<Placement> placements) {
  return Layout(mesh, shape, placements);
}

std::string error_of(const Rule& rule, std::vector<Layout> in, const RuleOptions& options = {}) {
  try {
    apply_rule(rule, in, options);
  } catch (const PlacementError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Signature, OfMatmulHasARowPerLetterAndPerLinearInput) {
  const PlacementSignature s = signature_of(matmul_rule());
  const std::vector<SignatureRow> want = {
      {{Replicate(), Replicate()}, {Replicate()}, false},
      {{Shard(0), Replicate()}, {Shard(0)}, false},
      {{Shard(1), Shard(0)}, {Partial()}, false},
      {{Replicate(), Shard(1)}, {Shard(1)}, false},
      {{Partial(), Replicate()}, {Partial()}, false},
      {{Replicate(), Partial()}, {Partial()}, false},
  };
  EXPECT_EQ(s.rows, want);
}

TEST(Signature, OfAddTakesPartialsJointlyOnly) {
  const PlacementSignature s = signature_of(add_rule());
  const std::vector<SignatureRow> want = {
      {{Replicate(), Replicate()}, {Replicate()}, false},
      {{Shard(0), Shard(0)}, {Shard(0)}, false},
      {{Partial(), Partial()}, {Partial()}, false},
  };
  EXPECT_EQ(s.rows, want);
}

TEST(Signature, LeavesOutUncutLettersAndMarksCommunicatingOnes) {
  const PlacementSignature s =
      signature_of(Rule{.op = "op", .letters = "abv,bv->b", .uncut = "a", .communicating = "v"});
  const std::vector<SignatureRow> want = {
      {{Replicate(), Replicate()}, {Replicate()}, false},
      {{Shard(1), Shard(0)}, {Shard(0)}, false},
      {{Shard(2), Shard(1)}, {Partial()}, true},
  };
  EXPECT_EQ(s.rows, want);
}

TEST(Rule, ReducesACommunicatingLetterItselfWhereItSaysSo) {
  const Rule rule{
      .op = "var", .letters = "ab->a", .communicating = "b", .reduced = "b", .ask = "{.ask}"};
  const SignatureRow last = signature_of(rule).rows.back();
  EXPECT_EQ(last, (SignatureRow{{Shard(1)}, {Replicate()}, true}));
  const std::vector<Layout> in = {on(tp4(), {5, 11}, {Shard(1)})};
  EXPECT_THROW(apply_rule(rule, in), PlacementError);
  const RuleResult r = apply_rule(rule, in, {.allow_communicating = true});
  EXPECT_TRUE(r.communicates);
  EXPECT_EQ(r.out.front(), on(tp4(), {5}, {}));
}

TEST(Rule, CutsALetterThatIsMissingFromTheOutputToPartial) {
  const std::vector<Layout> in = {on(tp4(), {5, 11}, {Shard(1)}), on(tp4(), {11, 3}, {Shard(0)})};
  const RuleResult r = apply_rule(matmul_rule(), in);
  EXPECT_EQ(r.in, in);
  EXPECT_EQ(r.out.front(), on(tp4(), {5, 3}, {Partial()}));
}

TEST(Rule, SlicesAReplicatedInputSilently) {
  const std::vector<Layout> in = {on(tp4(), {5, 11}, {Shard(1)}), on(tp4(), {11, 3}, {})};
  const RuleResult r = apply_rule(matmul_rule(), in);
  EXPECT_EQ(r.in[0], in[0]);
  EXPECT_EQ(r.in[1], on(tp4(), {11, 3}, {Shard(0)}));
}

TEST(Rule, JoinsAReplicatedInputToAPartialOne) {
  const RuleResult r =
      apply_rule(add_rule(), std::vector{on(tp4(), {5}, {Partial()}), on(tp4(), {5}, {})});
  EXPECT_EQ(r.in[1], on(tp4(), {5}, {Partial()}));
  EXPECT_EQ(r.out.front(), on(tp4(), {5}, {Partial()}));
}

TEST(Rule, KeepsMeshDimsApart) {
  const RuleResult r = apply_rule(
      matmul_rule(), std::vector{on(grid(), {6, 8}, {Shard(0), Shard(1)}), on(grid(), {8, 3}, {})});
  EXPECT_EQ(r.in[1], on(grid(), {8, 3}, {Replicate(), Shard(0)}));
  EXPECT_EQ(r.out.front(), on(grid(), {6, 3}, {Shard(0), Partial()}));
}

TEST(Rule, OutputsInheritUnits) {
  const Layout x = on(tp2(), {4, 60}, {}).with(0, Shard(1), 12);
  const Rule transpose{.op = "transpose", .letters = "ab->ba"};
  EXPECT_EQ(apply_rule(transpose, std::vector{x}).out.front(),
            on(tp2(), {60, 4}, {}).with(0, Shard(0), 12));
}

TEST(Rule, RefusesAPartialThatMeetsAPartialItIsNotJointlyLinearWith) {
  const std::string e = error_of(Rule{.op = "mul", .letters = "a,a->a", .linear = {{0}, {1}}},
                                 {on(tp2(), {4}, {Partial()}), on(tp2(), {4}, {Partial()})});
  EXPECT_THAT(e, HasSubstr("mul: a f32[4] is P(sum), b f32[4] is P(sum) on mesh dim \"tp\""));
  EXPECT_THAT(e, HasSubstr("not jointly linear"));
}

TEST(Rule, RefusesAnyOtherPartialThanSum) {
  EXPECT_THAT(error_of(Rule{.op = "scale", .letters = "a->a", .linear = {{0}}},
                       {on(tp2(), {4}, {Partial(PartialOp::kMax)})}),
              HasSubstr("P(max) has to be reduced first"));
}

TEST(Rule, RefusesAPartialThatMeetsACut) {
  EXPECT_THAT(
      error_of(matmul_rule(), {on(tp2(), {4, 4}, {Partial()}), on(tp2(), {4, 4}, {Shard(1)})}),
      HasSubstr("Partial meets a cut of 'n'"));
}

TEST(Rule, RefusesTwoLettersOnOneMeshDim) {
  const std::string e = error_of(
      matmul_rule(), {on(tp4(), {4096, 4096}, {Shard(1)}), on(tp4(), {4096, 4096}, {Shard(1)})});
  // Moving w to S(0) makes every rank receive 3/4 of its 16 MiB, gathering x 3/4 of 64 MiB.
  EXPECT_EQ(e,
            "matmul: x f32[4096,4096] is S(1), w f32[4096,4096] is S(1) on mesh dim \"tp\" (4 "
            "ranks); no row of mk,kn->mn takes that: it would cut both 'k' and 'n'.\n"
            "  Use redistribute(w, {Shard(0)}): 12.0 MiB per rank, gives P(sum); or "
            "redistribute(x, {Replicate()}): 48.0 MiB per rank, gives S(1).");
}

TEST(Rule, AsksForCommunicatingLetters) {
  const Rule rule{.op = "loss", .letters = "lv,l->", .communicating = "v", .ask = "{.ask = true}"};
  const std::vector<Layout> in = {on(tp2(), {4, 6}, {Shard(1)}), on(tp2(), {4}, {})};
  EXPECT_THAT(error_of(rule, in), HasSubstr("asked for by {.ask = true}"));
  const RuleResult r = apply_rule(rule, in, {.allow_communicating = true});
  EXPECT_TRUE(r.communicates);
  EXPECT_EQ(r.out.front(), on(tp2(), {}, {Partial()}));
}

TEST(Rule, NamesTheLetterWhoseSizesDisagree) {
  try {
    apply_rule(matmul_rule(), std::vector{on(tp2(), {4, 5}, {}), on(tp2(), {6, 3}, {})});
    FAIL() << "took 5 against 6";
  } catch (const ArgumentError& e) {
    EXPECT_THAT(e.what(), HasSubstr("x [4,5] and w [6,3] do not fit: 'k' of mk,kn->mn is 5 and 6"));
  }
}

// pytorch#166598, pytorch#166999: each mesh dim alone fits, the order does not.
TEST(CutAlike, TellsShardOrdersApart) {
  const Layout x = on(grid(), {5}, {Shard(0), Shard(0)});
  const Layout y = on(grid(), {5}, {Replicate(), Shard(0)}).with(0, Shard(0));
  ASSERT_EQ(x.spec().placement(0), y.spec().placement(0));
  const std::string e = error_of(add_rule(), {x, y});
  EXPECT_THAT(e, HasSubstr("x by dp, then tp (2,1,1,1), y by tp, then dp (2,1,1,1)"));
  EXPECT_THAT(e, HasSubstr("redistribute(y, x.layout())"));
  EXPECT_THAT(e, HasSubstr("; or redistribute("));
}

// pytorch#166998's kind: a level that can be appended is sliced silently, another order is not.
TEST(CutAlike, JoinsSilentlyOnlyByAppending) {
  const Layout x = on(grid(), {5}, {Replicate(), Shard(0)});
  const Layout outer_tp = x.with(0, Shard(0));
  const Layout outer_dp = on(grid(), {5}, {Shard(0), Shard(0)});
  EXPECT_EQ(apply_rule(add_rule(), std::vector{x, outer_tp}).in[0], outer_tp);
  EXPECT_THAT(error_of(add_rule(), {x, outer_dp}), HasSubstr("not cut alike"));
}

TEST(CutAlike, UnitsMatterOnlyWhereBoundariesDiffer) {
  const auto unit2 = [](int64_t n) { return on(tp2(), {n}, {}).with(0, Shard(0), 2); };
  const auto plain = [](int64_t n) { return on(tp2(), {n}, {Shard(0)}); };
  const RuleResult r = apply_rule(add_rule(), std::vector{unit2(8), plain(8)});
  EXPECT_EQ(r.in[1], plain(8)) << "no move, also no silent one";
  EXPECT_EQ(r.out.front(), unit2(8)) << "of the first input";
  EXPECT_THAT(error_of(add_rule(), {unit2(6), plain(6)}),
              HasSubstr("x by tp in units of 2 (4,2), y by tp (3,3)"));
}

// vllm#11797: heads 3,2 against a weight cut 30,30.
TEST(CutAlike, ShowsTheSizesAndTheFixByUnit) {
  const Rule linear{
      .op = "linear", .letters = "ak,nk->an", .linear = {{0}, {1}}, .names = {"x", "w"}};
  const Layout x = on(tp2(), {1, 60}, {}).with(0, Shard(1), 12);
  const std::string e = error_of(linear, {x, on(tp2(), {1, 60}, {Shard(1)})});
  EXPECT_THAT(e, HasSubstr("(36,24)"));
  EXPECT_THAT(e, HasSubstr("(30,30)"));
  EXPECT_THAT(e, HasSubstr("Use redistribute(w, w.layout().with(0, Shard(1), 12)): 24 bytes per "
                           "rank, gives P(sum)"));
}

TEST(Fixes, AreCheapestFirstAndFit) {
  const std::vector<Layout> in = {on(tp4(), {8, 8}, {Shard(1)}), on(tp4(), {8, 8}, {Shard(1)})};
  const std::vector<Fix> found = fixes(matmul_rule(), in);
  ASSERT_GE(found.size(), 3U);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_FALSE(match_rule(matmul_rule(), found[i].in, false).mismatch);
    if (i > 0) {
      EXPECT_LE(found[i - 1].received_bytes, found[i].received_bytes);
    }
  }
  // S(1) -> S(0) of 8x8: each rank holds 2 rows, of which it had 2 of 8 columns: 12 elements come.
  EXPECT_EQ(found.front().in[1], on(tp4(), {8, 8}, {Shard(0)}));
  EXPECT_EQ(found.front().received_bytes, 12 * 4);
}

TEST(Fixes, OfACallThatFitsCostNothing) {
  const std::vector<Layout> in = {on(tp4(), {8, 8}, {Shard(1)}), on(tp4(), {8, 8}, {})};
  EXPECT_EQ(fixes(matmul_rule(), in).front().in, in);
  EXPECT_EQ(fixes(matmul_rule(), in).front().received_bytes, 0);
}

TEST(Fixes, LeaveMeshDimsThatFitAlone) {
  const std::vector<Layout> in = {on(grid(), {8, 8}, {Shard(0), Shard(1)}),
                                  on(grid(), {8, 8}, {Replicate(), Shard(1)})};
  for (const Fix& fix : fixes(matmul_rule(), in)) {
    EXPECT_EQ(fix.in[0].placement(0), Shard(0));
    EXPECT_EQ(fix.in[1].placement(0), Replicate());
  }
  const std::string e = error_of(matmul_rule(), in);
  EXPECT_THAT(e, HasSubstr("on mesh dim \"tp\""));
  EXPECT_THAT(e, HasSubstr("redistribute(w, {Replicate(), Shard(0)})"));
}

TEST(Fixes, OfAMaxReduceItFirst) {
  const std::string e = error_of(Rule{.op = "neg", .letters = "a->a", .linear = {{0}}},
                                 {on(tp2(), {4}, {Partial(PartialOp::kMax)})});
  EXPECT_THAT(e, HasSubstr("Use redistribute(a, {Shard(0)}): 8 bytes per rank, gives S(0)"));
  EXPECT_THAT(e, Not(HasSubstr("Partial()")));
}

TEST(BytesText, IsExactWhereSmall) {
  EXPECT_EQ(bytes_text(24), "24 bytes");
  EXPECT_EQ(bytes_text(12 << 20), "12.0 MiB");
}

}  // namespace
}  // namespace dtensor
