// What of a checkpoint is loaded, under which names and dtypes, and what an error says.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "dtensor/base/allocator.h"
#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/attempt.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/name_glob.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/optim/adamw.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/support/error_of.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::checkpoint {
namespace {

using ::testing::AllOf;
using testing::Bag;
using ::testing::ElementsAre;
using testing::error_of;
using testing::files_under;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_file;
using testing::run_ranks;
using testing::TemporaryDirectory;
using testing::write_file;

Tensor counting(const Shape& shape) { return Tensor::arange(shape.numel()).view(shape); }

float first(const nn::Parameter& p) { return p.value().local_tensor().to_vector<float>()[0]; }

// Flips a bit of the last byte of every data file of an attempt.
void damage(const std::string& attempt) {
  for (const std::string& name : files_under(attempt)) {
    if (!name.ends_with(".safetensors")) continue;
    std::string bytes = read_file(attempt + "/" + name);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_file(attempt + "/" + name, bytes);
  }
}

TEST(NameGlob, AStarStaysInsideOnePartAndTwoDoNot) {
  EXPECT_TRUE(matches_glob("layers.*.weight", "layers.12.weight"));
  EXPECT_FALSE(matches_glob("layers.*.weight", "layers.1.mlp.weight"));
  EXPECT_TRUE(matches_glob("layers.**", "layers.1.mlp.weight"));
  EXPECT_TRUE(matches_glob("**.weight", "layers.1.mlp.weight"));
  EXPECT_TRUE(matches_glob("*", "w"));
  EXPECT_FALSE(matches_glob("*", "a.w"));
  EXPECT_TRUE(matches_glob("**", ""));
  EXPECT_FALSE(matches_glob("", "w"));
  EXPECT_TRUE(matches_glob("w*1", "w1"));
  EXPECT_FALSE(matches_glob("w", "w1"));
  // No recursion, no blow-up.
  EXPECT_FALSE(matches_glob("**a**a**a**a**a**a**a**a**a**b", std::string(2000, 'a')));
}

class LoadOptionsTest : public ::testing::Test {
 protected:
  LoadOptionsTest() {
    Bag bag;
    bag.add("layers.0.w", DTensor(Tensor::full({3}, 1)));
    bag.add("layers.1.w", DTensor(Tensor::full({3}, 2)));
    bag.add("head", DTensor(Tensor::full({2}, 3)));
    save(run_, 1, {.model = bag});
  }
  TemporaryDirectory dir_;
  std::string run_ = dir_ / "run";
};

TEST_F(LoadOptionsTest, OnlyWhatIsAskedForIsLoaded) {
  Bag bag;
  const auto zero = bag.add("layers.0.w", DTensor(Tensor::zeros({3})));
  const auto one = bag.add("layers.1.w", DTensor(Tensor::zeros({3})));
  // Not of the stored shape; not asked for.
  const auto head = bag.add("head", DTensor(Tensor::zeros({7})));
  LoadReport report;
  load(run_, {.model = bag},
       {.include = {"layers.**"}, .exclude = {"layers.1.*"}, .report = &report});
  EXPECT_EQ(first(zero), 1);
  EXPECT_EQ(first(one), 0);
  EXPECT_EQ(first(head), 0);
  EXPECT_THAT(report.left_alone, ElementsAre("layers.1.w", "head"));
  EXPECT_EQ(report.step, 1);
  EXPECT_GT(report.bytes_read, 0);
  // What nobody has a place for is still unexpected, unless that is allowed.
  Bag fewer;
  const auto alone = fewer.add("layers.0.w", DTensor(Tensor::zeros({3})));
  EXPECT_THAT(error_of([&] { load(run_, {.model = fewer}, {.include = {"layers.**"}}); }),
              AllOf(HasSubstr("Unexpected: head, layers.1.w"), Not(HasSubstr("missing"))));
  EXPECT_EQ(first(alone), 0);
  load(run_, {.model = fewer}, {.unexpected = Unexpected::kIgnore});
  EXPECT_EQ(first(alone), 1);
}

TEST_F(LoadOptionsTest, NamesMayDiffer) {
  Bag bag;
  const auto zero = bag.add("blocks.0.w", DTensor(Tensor::zeros({3})));
  const auto one = bag.add("layers.1.w", DTensor(Tensor::zeros({3})));
  bag.add("lm_head", DTensor(Tensor::zeros({2})));
  EXPECT_THAT(
      error_of([&] {
        load(run_, {.model = bag}, {.stored_as = {{"lm_head", "head"}, {"blocks.0.w", "b"}}});
      }),
      AllOf(HasSubstr("missing: b (for blocks.0.w)"), HasSubstr("Unexpected: layers.0.w")));
  load(run_, {.model = bag}, {.stored_as = {{"lm_head", "head"}, {"blocks.0.w", "layers.0.w"}}});
  EXPECT_EQ(first(zero), 1);
  EXPECT_EQ(first(one), 2);
  EXPECT_THROW(load(run_, {.model = bag}, {.stored_as = {{"typo", "head"}}}), ArgumentError);
}

TEST(LoadOptions, OptimizerStateFollowsARenamedParameter) {
  const TemporaryDirectory run;
  const auto make = [](Bag& bag, const std::string& name) {
    const auto w = bag.add(name, DTensor(counting({3})));
    w.value().set_requires_grad(true);
    return w;
  };
  Bag saved;
  const auto w = make(saved, "w");
  optim::AdamW opt(saved.parameters(), {.lr = 0.1});
  w.value().set_grad(DTensor(counting({3})));
  opt.step();
  save(run.path(), 1, {.model = saved, .optimizer = opt});
  Bag bag;
  make(bag, "v");
  optim::AdamW other(bag.parameters(), {.lr = 0.1});
  load(run.path(), {.model = bag, .optimizer = other}, {.stored_as = {{"v", "w"}}});
  for (const auto& s : other.state()) {
    if (s.state != "exp_avg") continue;
    EXPECT_NEAR(s.value.local_tensor().to_vector<float>()[2], 0.2, 1e-6);
  }
  EXPECT_EQ(other.steps(), 1);
}

// Rounding to nearest even, by hand.
TEST_F(LoadOptionsTest, AnotherDTypeNeedsConsent) {
  Bag saved;
  saved.add("w", DTensor(Tensor::of<float>({1.0F, 1.00390625F, 1.01171875F, -3}, {4})));
  saved.add("i", DTensor(Tensor::zeros({2}, DType::kInt64)));
  save(dir_ / "f32", 1, {.model = saved});
  Bag bag;
  const auto w = bag.add("w", DTensor(Tensor::zeros({4}, DType::kBFloat16)));
  const auto i = bag.add("i", DTensor(Tensor::zeros({2}, DType::kInt64)));
  EXPECT_THAT(error_of([&] { load(dir_ / "f32", {.model = bag}); }),
              AllOf(HasSubstr("\"w\" is bf16[4] here and f32[4] there"), HasSubstr("kConvert")));
  EXPECT_EQ(load(dir_ / "f32", {.model = bag}, {.dtypes = DTypeChange::kConvert}), 1);
  EXPECT_EQ(w.value().local_tensor().to(DType::kFloat32).to_vector<float>(),
            (std::vector<float>{1, 1, 1.015625F, -3}));
  // Integers are never made of, or from, anything else.
  Bag ints;
  ints.add("w", DTensor(Tensor::zeros({4}, DType::kInt32)));
  ints.add("i", DTensor(Tensor::zeros({2})));
  EXPECT_THAT(
      error_of([&] { load(dir_ / "f32", {.model = ints}, {.dtypes = DTypeChange::kConvert}); }),
      AllOf(HasSubstr("\"w\" is i32[4] here"), HasSubstr("\"i\" is f32[2] here"),
            Not(HasSubstr("kConvert"))));
}

// Everything that is wrong is said at once, and found before a byte of the model changed.
TEST_F(LoadOptionsTest, AllThatDoesNotFitIsListedAtOnce) {  // pytorch#148252, DeepSpeed#6691
  run_ranks(2, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    Bag bag;
    const auto right = bag.add("head", distribute(Tensor::full({2}, 7), mesh, {Shard(0)}));
    bag.add("layers.0.w", distribute(Tensor::zeros({4}), mesh, {Shard(0)}));
    bag.add("layers.1.w", distribute(Tensor::zeros({3}, DType::kFloat16), mesh, {Replicate()}));
    bag.add("new", distribute(Tensor::zeros({4}), mesh, {Replicate()}));
    EXPECT_THAT(error_of([&] {
                  load(run_, {.model = bag}, {.stored_as = {{"head", "tail"}}});
                }),
                AllOf(HasSubstr("missing: tail (for head), new"), HasSubstr("Unexpected: head"),
                      HasSubstr("\"layers.0.w\" is f32[4] here and f32[3] there"),
                      HasSubstr("\"layers.1.w\" is f16[3] here and f32[3] there"),
                      HasSubstr("Nothing was loaded")));
    EXPECT_EQ(full(right.value()).to_vector<float>(), (std::vector<float>{7, 7}));
  });
}

// KempnerForge#102: damage of equal size is seen only in the data.
TEST_F(LoadOptionsTest, ADamagedStepIsAnErrorThatNamesAnOlderOneOrIsPassedOver) {
  for (const int world : {1, 3}) {
    const std::string run = dir_ / ("damaged" + std::to_string(world));
    run_ranks(world, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"x", world}});
      for (const int64_t step : {10, 20}) {
        Bag bag;
        bag.add("w", distribute(Tensor::full({7}, static_cast<double>(step)), mesh, {Shard(0)}));
        save(run, step, {.model = bag});
      }
    });
    const std::string twenty = list_attempts(run).front().path;
    damage(twenty);
    run_ranks(world, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"x", world}});
      Bag bag;
      const auto w = bag.add("w", distribute(Tensor::zeros({7}), mesh, {Replicate()}));
      EXPECT_THAT(error_of([&] { load(run, {.model = bag}); }),
                  AllOf(HasSubstr("block 0"), HasSubstr("\"w\""), HasSubstr("{.step = 10}"),
                        HasSubstr("kBeforeReading")));
      LoadReport report;
      EXPECT_EQ(load(run, {.model = bag}, {.check = DataCheck::kBeforeReading, .report = &report}),
                10);
      EXPECT_EQ(full(w.value()).to_vector<float>(), std::vector<float>(7, 10));
      if (comm.rank() == 0) {
        ASSERT_EQ(report.passed_over.size(), 1U);
        EXPECT_THAT(report.passed_over[0], AllOf(HasSubstr("step-20"), HasSubstr("block 0")));
      }
      EXPECT_THAT(error_of([&] {
                    load(run, {.model = bag}, {.step = 20, .check = DataCheck::kBeforeReading});
                  }),
                  AllOf(HasSubstr("step 20"), HasSubstr("block 0")));
      // A rank that does not see the directory is an error, not a first start.
      if (world > 1) {
        const std::string blind = comm.rank() == 1 ? dir_ / "elsewhere" : run;
        EXPECT_THAT(
            error_of([&] { load(blind, {.model = bag}, {.check = DataCheck::kBeforeReading}); }),
            HasSubstr(dir_ / "elsewhere"));
      }
    });
  }
}

// pytorch#149640, Megatron-LM#2339: 64 MiB with a budget of 4 MiB.
TEST_F(LoadOptionsTest, MemoryStaysWithinTheShardAndTheBuffer) {
  const int64_t rows = 1024;
  const int64_t columns = 16384;
  const auto allocator = make_heap_allocator();
  const ScopedSlot<CurrentAllocator> scope({allocator});
  {
    Bag bag;
    bag.add("w", DTensor(counting({rows, columns})));
    save(dir_ / "large", 1, {.model = bag});
  }
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Bag bag;
    const auto w = bag.add("w", DTensor(Tensor::zeros({rows, columns}, dtype)));
    const int64_t live = allocator->stats().live_bytes;
    allocator->reset_peak();
    LoadReport report;
    load(dir_ / "large", {.model = bag},
         {.buffer_bytes = 4 << 20, .dtypes = DTypeChange::kConvert, .report = &report});
    EXPECT_LE(allocator->stats().peak_bytes, live + (4 << 20));
    EXPECT_LE(report.bytes_read, rows * columns * 4 + (2 << 20));
    EXPECT_EQ(w.value()
                  .local_tensor()
                  .narrow(0, 0, 1)
                  .narrow(1, 0, 3)
                  .to(DType::kFloat32)
                  .to_vector<float>(),
              (std::vector<float>{0, 1, 2}));
  }
}

// A call that is wrong on one rank is an error on all of them, and none waits for another.
TEST(LoadOfRanks, AWrongCallOnOneRankIsAnErrorOnAll) {
  const TemporaryDirectory run;
  run_ranks(3, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    Bag bag;
    bag.add("w", distribute(counting({6}), mesh, {Shard(0)}));
    save(run.path(), 1, {.model = bag});
    Bag other;  // its parameter is not the model's
    other.add("w", distribute(counting({6}), mesh, {Shard(0)}));
    optim::AdamW stranger(other.parameters(), {});
    const bool wrong = comm.rank() == 1;
    const auto expect = [&](const State& state, const LoadOptions& options, const char* what) {
      try {
        load(run.path(), state, options);
        ADD_FAILURE() << what;
      } catch (const ArgumentError& e) {
        EXPECT_TRUE(wrong) << e.what();
        EXPECT_THAT(e.what(), HasSubstr(what));
      } catch (const CheckpointError& e) {
        EXPECT_FALSE(wrong) << e.what();
        EXPECT_THAT(e.what(), AllOf(HasSubstr("rank 1: "), HasSubstr(what)));
      }
      EXPECT_EQ(load(run.path(), {.model = bag}), 1);  // the Comm is still good
    };
    for (const int threads : {0, -1, 257, 2'000'000'000}) {
      expect({.model = bag}, {.io_threads = wrong ? threads : 2}, ".io_threads");
    }
    LoadOptions renamed;
    if (wrong) renamed.stored_as = {{"v", "w"}};
    expect({.model = bag}, renamed, "\"v\"");
    const State strange = {.model = bag, .optimizer = stranger};
    expect(wrong ? strange : State{.model = bag}, {}, "optimizer");
  });
}

}  // namespace
}  // namespace dtensor::checkpoint
