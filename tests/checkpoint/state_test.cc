// What is saved besides tensors, and a run that goes on with other ranks where it stopped.

#include "dtensor/checkpoint/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <numeric>

#include "dtensor/base/error.h"
#include "dtensor/base/philox.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/record.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/ops/ops.h"
#include "dtensor/optim/adamw.h"
#include "dtensor/optim/ema.h"
#include "dtensor/optim/sgd.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::checkpoint {
namespace {

using testing::Bag;
using ::testing::HasSubstr;
using testing::run_ranks;
using testing::TemporaryDirectory;

TEST(State, EverythingComesBack) {
  const TemporaryDirectory run;
  Bag bag;
  bag.add("w", DTensor(Tensor::arange(3)));
  std::map<std::string, int64_t> numbers = {{"best", -5}};
  Generator generator{0xffff'ffff'ffff'fff0U, 17};
  DataPosition data{1234};
  std::map<std::string, std::string> json = {
      {"scheduler", "{\"last\": 0.1,\n  \"warm\\u00fcp\": 1e-3}"}, {"ü\"", "[]"}};
  const auto json_before = json;
  const State state{
      .model = bag, .numbers = numbers, .generator = generator, .data = data, .json = json};
  save(run.path(), 1, state);
  numbers["best"] = 0;
  generator = {};
  data = {};
  json = {{"scheduler", "null"}};
  EXPECT_EQ(load(run.path(), state), 1);
  EXPECT_EQ(numbers.at("best"), -5);
  EXPECT_EQ(generator, (Generator{0xffff'ffff'ffff'fff0U, 17}));
  EXPECT_EQ(data.samples, 1234);
  EXPECT_EQ(json, json_before);
  // What was saved need not be wanted; what is wanted must have been saved.
  EXPECT_EQ(load(run.path(), {.model = bag}), 1);
  json["other"] = "1";
  EXPECT_THROW(load(run.path(), state), CheckpointError);
  save(run.path(), 2, {.model = bag});
  EXPECT_THROW(load(run.path(), {.model = bag, .generator = generator}), CheckpointError);
  EXPECT_THROW(load(run.path(), {.model = bag, .data = data}), CheckpointError);
}

// What a run averages is the same whether it stopped and went on with other ranks or did not.
TEST(State, MovingAveragesGoOnWhereTheyStopped) {
  const TemporaryDirectory run;
  constexpr int64_t kSize = 11;
  const auto at = [](int step) {
    return randn({kSize}, {}, {}, {.seed = static_cast<uint64_t>(step), .stream = "w"})
        .local_tensor()
        .to(DType::kBFloat16);
  };
  std::vector<float> want = at(0).to(DType::kFloat32).to_vector<float>();
  for (const int step : {1, 2, 3}) {
    const std::vector<float> w = at(step).to(DType::kFloat32).to_vector<float>();
    for (size_t i = 0; i < want.size(); ++i) {
      want[i] = 0.9F * want[i] + static_cast<float>(1.0 - 0.9) * w[i];
    }
  }
  const auto set = [&](const nn::Parameter& p, int step) {
    p.value().replace(distribute(at(step), p.value().mesh(), {p.value().spec().placement(0)}));
  };
  run_ranks(2, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    Bag bag;
    const auto w = bag.add("w", distribute(at(0), mesh, {Shard(0)}));
    optim::Ema ema({w}, 0.9);
    for (const int step : {1, 2}) {
      set(w, step);
      ema.update();
    }
    save(run.path(), 2, {.model = bag, .ema = ema});
  });
  for (const auto placement : {Placement(Shard(0)), Placement(Replicate())}) {
    run_ranks(3, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"x", 3}});
      Bag bag;
      const auto w = bag.add("w", distribute(at(7), mesh, {placement}));
      optim::Ema ema({w}, 0.9);
      EXPECT_EQ(load(run.path(), {.ema = ema}), 2);  // alone too
      EXPECT_EQ(full(w.value()).to_vector<BFloat16>(), at(7).to_vector<BFloat16>());
      ASSERT_EQ(load(run.path(), {.model = bag, .ema = ema}), 2);
      EXPECT_EQ(full(w.value()).to_vector<BFloat16>(), at(2).to_vector<BFloat16>());
      set(w, 3);
      ema.update();
      EXPECT_EQ(full(ema.state()[0].value).to_vector<float>(), want);
      // Who does not want them does not get them.
      EXPECT_EQ(load(run.path(), {.model = bag}), 2);
    });
  }
}

// Each part loads without the others.
TEST(State, MovingAveragesAndOptimizerStateLoadApart) {
  const TemporaryDirectory run;
  Bag bag;
  const auto w = bag.add("w", DTensor(Tensor::full({3}, 1)));
  w.value().set_requires_grad(true);
  optim::SGD optimizer(bag.parameters(), {.lr = 1, .momentum = 0.5});
  optim::Ema ema({w}, 0.5);
  save(run.path(), 1, {.model = bag, .optimizer = optimizer, .ema = ema});
  const auto first = [](const DTensor& t) -> float& { return t.local_tensor().data<float>()[0]; };
  first(ema.state()[0].value) = first(optimizer.state()[0].value) = 7;
  EXPECT_EQ(load(run.path(), {.model = bag, .optimizer = optimizer}), 1);
  EXPECT_EQ(first(ema.state()[0].value), 7);
  EXPECT_EQ(first(optimizer.state()[0].value), 0);
  first(optimizer.state()[0].value) = 7;
  EXPECT_EQ(load(run.path(), {.model = bag, .ema = ema}), 1);
  EXPECT_EQ(first(ema.state()[0].value), 1);
  EXPECT_EQ(first(optimizer.state()[0].value), 7);
}

TEST(State, MovingAveragesThatAreWantedMustBeThere) {
  const TemporaryDirectory run;
  Bag bag;
  const auto w = bag.add("w", DTensor(Tensor::full({3}, 1)));
  save(run.path(), 1, {.model = bag});
  w.value().local_tensor().data<float>()[0] = 7;
  optim::Ema ema({w}, 0.5);
  try {
    load(run.path(), {.model = bag, .ema = ema});
    FAIL();
  } catch (const CheckpointError& e) {
    EXPECT_THAT(e.what(), HasSubstr("missing: optimizer.ema.w"));
  }
  EXPECT_EQ(w.value().local_tensor().data<float>()[0], 7);
  const nn::Parameter other(DTensor(Tensor::full({3}, 1)));
  optim::Ema stranger({other}, 0.5);
  EXPECT_THROW(save(run.path(), 2, {.model = bag, .ema = stranger}), ArgumentError);
}

TEST(State, ADocumentThatIsNoJsonIsRefused) {
  const TemporaryDirectory run;
  std::map<std::string, std::string> json = {{"scheduler", "{last: 1}"}};
  EXPECT_THROW(save(run / "x", 1, {.json = json}), ArgumentError);
  EXPECT_FALSE(std::filesystem::exists(run / "x"));
  // What load replaces need not be any.
  std::map<std::string, std::string> good = {{"scheduler", "{}"}};
  save(run / "x", 1, {.json = good});
  EXPECT_EQ(load(run / "x", {.json = json}), 1);
  EXPECT_EQ(json, good);
}

// What AdamW corrects by comes back with the averages that it belongs to, and only with them.
TEST(State, UpdatesOfAParameterGoWithItsAverages) {
  const TemporaryDirectory run;
  const auto make = [](Bag& bag) {
    for (const char* name : {"a", "b", "c"}) {
      bag.add(name, DTensor(Tensor::full({3}, 1))).value().set_requires_grad(true);
    }
    return std::make_unique<optim::AdamW>(bag.parameters(), optim::AdamWOptions{});
  };
  const auto step = [](Bag& bag, optim::Optimizer& optimizer, size_t parameters) {
    for (size_t i = 0; i < parameters; ++i) {
      bag.parameters()[i].value().set_grad(DTensor(Tensor::full({3}, 0.5)));
    }
    optimizer.step();
    optimizer.zero_grad();
  };
  using Counts = std::vector<int64_t>;
  Bag bag;
  const auto optimizer = make(bag);
  for (const size_t parameters : {1, 1, 2, 2, 2}) step(bag, *optimizer, parameters);
  ASSERT_EQ(optimizer->updates(), (Counts{5, 3, 0}));
  save(run.path(), 5, {.model = bag, .optimizer = *optimizer});

  Bag all;
  const auto of_all = make(all);
  load(run.path(), {.model = all, .optimizer = *of_all});
  EXPECT_EQ(of_all->steps(), 5);
  EXPECT_EQ(of_all->updates(), (Counts{5, 3, 0}));
  // The next step is the same.
  step(bag, *optimizer, 3);
  step(all, *of_all, 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(all.parameters()[i].value().local_tensor().to_vector<float>(),
              bag.parameters()[i].value().local_tensor().to_vector<float>());
  }

  Bag part;
  const auto of_part = make(part);
  step(part, *of_part, 3);
  load(run.path(), {.model = part, .optimizer = *of_part}, {.include = {"b", "optimizer.*.b"}});
  EXPECT_EQ(of_part->updates(), (Counts{1, 3, 1}));
  load(run.path(), {.model = part, .optimizer = *of_part}, {.exclude = {"optimizer.**"}});
  EXPECT_EQ(of_part->updates(), (Counts{1, 3, 1}));
  load(run.path(), {.model = part, .optimizer = *of_part},
       {.include = {"a", "optimizer.*.a"},
        .stored_as = {{"a", "b"}},
        .unexpected = Unexpected::kIgnore});
  EXPECT_EQ(of_part->updates(), (Counts{3, 3, 1}));
}

TEST(State, NegativeCountsAreRefusedBeforeAnythingChanges) {
  const TemporaryDirectory run;
  Bag bag;
  const auto w = bag.add("w", DTensor(Tensor::full({3}, 1)));
  w.value().set_requires_grad(true);
  optim::SGD optimizer(bag.parameters(), {});
  Generator generator;
  DataPosition data;
  const State state{.model = bag, .optimizer = optimizer, .generator = generator, .data = data};
  save(run.path(), 1, state);
  w.value().local_tensor().data<float>()[0] = 7;
  const std::string path = latest(run.path()).directory + "/" + record_name(0);
  const Record good = parse_record(testing::read_file(path), path);
  for (const char* name :
       {kOptimizerSteps, kDataSamples, kGeneratorStream, "optimizer.updates.w"}) {
    Record bad = good;
    bad.numbers[name] = -1;
    testing::write_file(path, to_text(bad));
    try {
      load(run.path(), state);
      FAIL() << name;
    } catch (const CheckpointError& e) {
      EXPECT_THAT(e.what(), HasSubstr(name));
    }
    EXPECT_EQ(w.value().local_tensor().data<float>()[0], 7);
    EXPECT_EQ(optimizer.steps(), 0);
  }
  testing::write_file(path, to_text(good));
  EXPECT_EQ(load(run.path(), state), 1);
  data.samples = -1;
  EXPECT_THROW(save(run.path(), 2, state), ArgumentError);
}

TEST(State, DocumentsThatDifferBetweenRanksMakeItIncomplete) {
  const TemporaryDirectory run;
  run_ranks(2, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    std::map<std::string, std::string> json = {{"lr", comm.rank() == 0 ? "1" : "2"}};
    save(run.path(), 1, {.json = json});
  });
  EXPECT_THAT(latest(run.path()).passed_over.at(0), HasSubstr("\"lr\""));
}

TEST(Position, TheNextSamplesFollowFromOneNumber) {
  DataPosition p;
  for (int i = 0; i < 3; ++i) p.advance(8);
  EXPECT_EQ(p.next(8, 0, 2), (Range{24, 28}));
  EXPECT_EQ(p.next(8, 1, 2), (Range{28, 32}));
  EXPECT_EQ(p.next(8, 0, 3), (Range{24, 27}));
  EXPECT_EQ(p.next(8, 1, 3), (Range{27, 30}));
  EXPECT_EQ(p.next(8, 2, 3), (Range{30, 32}));
  EXPECT_EQ(p.epoch(10), 2);
  EXPECT_EQ(DataPosition::index_in_epoch(24, 10), 4);
  EXPECT_THROW(p.next(8, 3, 3), ArgumentError);
  EXPECT_THROW(p.next(-1, 0, 3), ArgumentError);
  EXPECT_THROW(p.advance(-1), ArgumentError);
  EXPECT_THROW(static_cast<void>(p.epoch(0)), ArgumentError);
}

// Samples that were read, by step, and the loss of each step.
struct Log {
  std::mutex mutex;
  std::map<int64_t, std::vector<int64_t>> samples;
  std::map<int64_t, float> losses;
};

// Linear regression: sample s is the row (s, 1) / 64 with the target s / 16.
void train(const std::string& run, int ranks, int64_t steps, Log& log) {
  constexpr int64_t kBatch = 8;
  run_ranks(ranks, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", ranks}});
    Bag bag;
    const auto w = bag.add("w", distribute(Tensor::zeros({2, 1}), mesh, {Replicate()}));
    w.value().set_requires_grad(true);
    optim::SGD optimizer(bag.parameters(), {.lr = 0.5});
    DataPosition data;
    const State state{.model = bag, .optimizer = optimizer, .data = data};
    for (int64_t step = load(run, state).value_or(0); step < steps; ++step) {
      const Range mine = data.next(kBatch, comm.rank(), ranks);
      Tensor x = Tensor::empty({mine.size(), 2});
      Tensor y = Tensor::empty({mine.size(), 1});
      for (int64_t i = 0; i < mine.size(); ++i) {
        const auto s = static_cast<float>(mine.begin + i);
        x.data<float>()[2 * i] = s / 64;
        x.data<float>()[2 * i + 1] = 1.0F / 64;
        y.data<float>()[i] = s / 16;
      }
      const auto on_mesh = [&](const Tensor& t, int64_t columns) {
        return DTensor(t, Layout(mesh.layout(), {kBatch, columns}, {Shard(0)}), mesh);
      };
      const DTensor error = sub(matmul(on_mesh(x, 2), w.value()), on_mesh(y, 1));
      DTensor loss = mean(mul(error, error));
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
      data.advance(kBatch);
      const float value = full(loss).to_vector<float>()[0];
      const std::lock_guard lock(log.mutex);
      for (int64_t i = mine.begin; i < mine.end; ++i) log.samples[step].push_back(i);
      log.losses[step] = value;
    }
    save(run, steps, state);
  });
}

// torchtitan#811, torchtitan#816, torchft#309
TEST(Position, ARunGoesOnWithOtherRanksWithoutLosingOrRepeatingASample) {
  Log whole;
  const TemporaryDirectory one;
  train(one.path(), 4, 6, whole);
  for (const int ranks : {2, 3, 1, 5}) {
    const TemporaryDirectory run;
    Log log;
    train(run.path(), 4, 3, log);
    train(run.path(), ranks, 6, log);
    ASSERT_EQ(log.losses.size(), 6U);
    for (int64_t step = 0; step < 6; ++step) {
      std::vector<int64_t> want(8);
      std::iota(want.begin(), want.end(), step * 8);
      std::ranges::sort(log.samples[step]);
      EXPECT_EQ(log.samples[step], want) << "step " << step << " on " << ranks;
      // 8 terms summed in another order: at most 8 roundings of f32 relative to the sum.
      EXPECT_NEAR(log.losses[step], whole.losses[step], 1e-6F * whole.losses[step] + 1e-7F);
    }
  }
}

TEST(Timer, BySteps) {
  SaveTimer timer({.steps = 3});
  std::vector<int64_t> due;
  for (int64_t step = 1; step <= 7; ++step) {
    if (timer.is_due(step)) due.push_back(step);
  }
  EXPECT_EQ(due, (std::vector<int64_t>{3, 6}));
  EXPECT_FALSE(SaveTimer({}).is_due(3));
  EXPECT_THROW(SaveTimer({.steps = -1}), ArgumentError);
}

// Clocks of ranks differ; rank 0's counts, so that all save the same steps.
TEST(Timer, ByTheTimeOfRankZero) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    int64_t calls = 0;
    SaveTimer timer({.steps = 100, .time = std::chrono::seconds(10)}, [&] {
      ++calls;
      const int64_t now = comm.rank() == 0 ? 4 * calls : 1000 * calls;
      return std::chrono::steady_clock::time_point(std::chrono::seconds(now));
    });
    std::vector<int64_t> due;
    for (int64_t step = 1; step <= 6; ++step) {
      if (timer.is_due(step)) due.push_back(step);
    }
    // Rank 0 asks at 8, 12 and 16: 12 s after 4. It notes 20, and is due again at 32.
    EXPECT_EQ(due, (std::vector<int64_t>{3, 6}));
  });
}

}  // namespace
}  // namespace dtensor::checkpoint
