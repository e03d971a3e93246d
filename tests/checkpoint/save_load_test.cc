// Saved on one mesh, loaded on others; every value is compared with the plain global array.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <numeric>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/record.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/checkpoint/tensor_file.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/optim/adamw.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/kernels.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/support/error_of.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::checkpoint {
namespace {

using ::testing::AllOf;
using testing::Bag;
using testing::error_of;
using testing::files_under;
using ::testing::HasSubstr;
using testing::read_file;
using testing::run_ranks;
using testing::TemporaryDirectory;
using testing::write_file;

Tensor counting(const Shape& shape) { return Tensor::arange(shape.numel()).view(shape); }

// The data bytes of every data file of the one attempt in a directory, by file name.
std::map<std::string, int64_t> data_bytes(const std::string& run) {
  std::map<std::string, int64_t> bytes;
  for (const std::string& name : files_under(run)) {
    if (!name.ends_with(".safetensors")) continue;
    const safetensors::File file(run + "/" + name);
    bytes[std::filesystem::path(name).filename().string()] =
        file.size_bytes() - file.data_offset_bytes();
  }
  return bytes;
}

int records_in(const std::string& run) {
  int count = 0;
  for (const std::string& name : files_under(run)) count += name.ends_with(".record.json") ? 1 : 0;
  return count;
}

// Where a tensor lies: a mesh by its dims, and placements.
struct Place {
  std::vector<MeshDim> mesh;
  std::vector<Placement> placements;
  std::vector<int> ranks = {};

  int world() const {
    int size = 1;
    for (const MeshDim& d : mesh) size *= d.size;
    for (const int r : ranks) size = std::max(size, r + 1);
    return size;
  }
};

void save_at(const std::string& run, const Place& place, const Tensor& whole, int64_t step = 1) {
  run_ranks(place.world(), [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, place.mesh, place.ranks);
    const Layout layout(mesh.layout(), whole.shape(), place.placements);
    Bag bag;
    bag.add("w", distribute(whole, mesh, layout));
    save(run, step, {.model = bag});
  });
}

void expect_loads_at(const std::string& run, const Place& place, const Tensor& whole) {
  run_ranks(place.world(), [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, place.mesh, place.ranks);
    const Layout layout(mesh.layout(), whole.shape(), place.placements);
    Bag bag;
    const auto w =
        bag.add("w", distribute(Tensor::full(whole.shape(), -1.0, whole.dtype()), mesh, layout));
    EXPECT_EQ(load(run, {.model = bag}), 1);
    if (!w.value().has_local()) return;
    const Box box = layout.box_of(comm.rank());
    Tensor want = whole;
    for (int d = 0; d < whole.ndim(); ++d) want = want.narrow(d, box.offset[d], box.size[d]);
    EXPECT_EQ(w.value().local_tensor().to_vector<float>(), want.to_vector<float>())
        << to_string(layout) << " rank " << comm.rank();
  });
}

std::vector<Place> places(int ndim) {
  std::vector<Place> out = {{{{"x", 1}}, {Replicate()}},
                            {{{"x", 2}}, {Shard(0)}},
                            {{{"x", 3}}, {Shard(0)}},
                            {{{"x", 4}}, {Shard(0)}},
                            {{{"x", 3}}, {Replicate()}},
                            {{{"a", 2}, {"b", 2}}, {Shard(0), Shard(0)}},
                            {{{"a", 2}, {"b", 2}}, {Replicate(), Shard(0)}},
                            {{{"a", 2}, {"b", 2, {3, 1}}}, {Replicate(), Shard(0)}, {3, 1, 0, 2}},
                            {{{"x", 2}}, {Shard(0)}, {2, 0}}};
  if (ndim > 1) {
    out.push_back({{{"x", 3}}, {Shard(1)}});
    out.push_back({{{"a", 2}, {"b", 2}}, {Shard(1), Shard(0)}});
    out.push_back({{{"a", 2}, {"b", 2}}, {Shard(1), Shard(1)}});
  }
  return out;
}

// pytorch#103306, pytorch#108869, pytorch#161368, DeepSpeed#1070
TEST(SaveLoad, FromAnyMeshToAnyOther) {
  for (const Shape& shape : {Shape{6}, Shape{5, 10}, Shape{2}, Shape{3, 2, 5}, Shape{0, 4}}) {
    const Tensor whole = counting(shape);
    for (const Place& from : places(shape.ndim())) {
      const TemporaryDirectory run;
      save_at(run.path(), from, whole);
      EXPECT_EQ(records_in(run.path()), from.world());
      for (const Place& to : places(shape.ndim())) expect_loads_at(run.path(), to, whole);
    }
  }
}

TEST(SaveLoad, OnlyRanksThatHoldDataWriteAFile) {  // pytorch#161368
  const TemporaryDirectory run;
  save_at(run.path(), {{{"a", 2}, {"b", 4}}, {Shard(0), Shard(0)}}, counting({2}));
  EXPECT_EQ(data_bytes(run.path()).size(), 2U);
  EXPECT_EQ(records_in(run.path()), 8);
}

// torchtitan#709, DeepSpeed#6503
TEST(SaveLoad, ReplicasAreWrittenOnceAndLargeOnesShared) {
  const std::vector<std::pair<Placement, int>> small = {{Replicate(), 1}, {Shard(0), 2}};
  for (const auto& [placement, files] : small) {
    const TemporaryDirectory run;
    save_at(run.path(), {{{"tp", 2}}, {placement}}, counting({4, 4}));
    int64_t sum = 0;
    const auto bytes = data_bytes(run.path());
    for (const auto& [name, size] : bytes) sum += size;
    EXPECT_EQ(sum, 64);
    EXPECT_EQ(static_cast<int>(bytes.size()), files);
    expect_loads_at(run.path(), {{{"tp", 1}}, {Replicate()}}, counting({4, 4}));
  }
  const TemporaryDirectory run;
  save_at(run.path(), {{{"x", 3}}, {Replicate()}}, counting({256, 64}));
  const std::map<std::string, int64_t> want = {{"rank-00000.safetensors", 86 * 256},
                                               {"rank-00001.safetensors", 85 * 256},
                                               {"rank-00002.safetensors", 85 * 256}};
  EXPECT_EQ(data_bytes(run.path()), want);
}

TEST(SaveLoad, SmallReplicasAreSpreadOverTheRanks) {
  const TemporaryDirectory run;
  run_ranks(4, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 4}});
    Bag bag;
    for (int i = 0; i < 40; ++i) {
      bag.add("layer" + std::to_string(i), distribute(counting({4}), mesh, {Replicate()}));
    }
    save(run.path(), 1, {.model = bag});
  });
  const auto bytes = data_bytes(run.path());
  ASSERT_EQ(bytes.size(), 4U);
  int64_t sum = 0;
  for (const auto& [name, size] : bytes) sum += size;
  EXPECT_EQ(sum, 40 * 16);
}

TEST(SaveLoad, TiedParametersAreOneAndNamesWithAHashStayNames) {  // torchtitan#3764, pytorch#120356
  const TemporaryDirectory run;
  Bag bag;
  const auto in = bag.add("embed", DTensor(counting({3})));
  bag.tie("head", in);
  bag.add("w", DTensor(Tensor::of<float>({1}, {1})));
  bag.add("w#1", DTensor(Tensor::of<float>({2}, {1})));
  bag.add("#", DTensor(Tensor::of<float>({3}, {1})));
  save(run.path(), 1, {.model = bag});
  const auto found = find_complete(run.path());
  ASSERT_TRUE(found.complete.has_value());
  const auto keys = read_tensors(found.complete->files.at(0).path);
  std::set<std::string> names;
  for (const auto& [key, tensor] : keys) names.insert(key);
  EXPECT_EQ(names, (std::set<std::string>{"embed", "w", "w##1", "##"}));

  Bag apart;  // not tied: both names load
  const auto a = apart.add("embed", DTensor(Tensor::zeros({3})));
  const auto b = apart.add("head", DTensor(Tensor::zeros({3})));
  const auto w = apart.add("w", DTensor(Tensor::zeros({1})));
  const auto w1 = apart.add("w#1", DTensor(Tensor::zeros({1})));
  apart.add("#", DTensor(Tensor::zeros({1})));
  EXPECT_EQ(load(run.path(), {.model = apart}), 1);
  EXPECT_EQ(a.value().local_tensor().to_vector<float>(), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(b.value().local_tensor().to_vector<float>(), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(w.value().local_tensor().to_vector<float>(), (std::vector<float>{1}));
  EXPECT_EQ(w1.value().local_tensor().to_vector<float>(), (std::vector<float>{2}));

  Bag other_way;  // tied with the other name first
  const auto head = other_way.add("head", DTensor(Tensor::zeros({3})));
  other_way.tie("embed", head);
  other_way.add("w", DTensor(Tensor::zeros({1})));
  other_way.add("w#1", DTensor(Tensor::zeros({1})));
  other_way.add("#", DTensor(Tensor::zeros({1})));
  EXPECT_EQ(load(run.path(), {.model = other_way}), 1);
  EXPECT_EQ(head.value().local_tensor().to_vector<float>(), (std::vector<float>{0, 1, 2}));
}

TEST(SaveLoad, TensorsOnNoMeshMustBeTheSameOnAllRanks) {  // torchtitan#3764
  const TemporaryDirectory run;
  const auto save_with = [&](int64_t step, bool differ) {
    run_ranks(2, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"x", 2}});
      Bag bag;
      bag.add("plain", DTensor(Tensor::full({3}, differ ? comm.rank() : 5)));
      bag.add("large", DTensor(counting({100, 200})));
      save(run.path(), step, {.model = bag});
    });
  };
  save_with(1, false);
  EXPECT_TRUE(find_complete(run.path()).complete.has_value());
  EXPECT_EQ(data_bytes(run.path()).size(), 2U);  // the large one is shared
  save_with(2, true);
  const Found found = find_complete(run.path());
  EXPECT_EQ(found.complete->attempt.step, 1);
  EXPECT_THAT(found.passed_over.at(0).reason(),
              AllOf(HasSubstr("\"plain\""), HasSubstr("rank 0"), HasSubstr("rank 1")));
}

TEST(SaveLoad, APartialTensorIsRefusedBeforeAnythingIsWritten) {  // pytorch#126595
  const TemporaryDirectory run;
  run_ranks(2, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    Bag bag;
    bag.add("fine", distribute(counting({4}), mesh, {Shard(0)}));
    bag.add("part", distribute(counting({4}), mesh, {Partial()}));
    EXPECT_THAT(error_of([&] { save(run / "sub", 1, {.model = bag}); }), HasSubstr("\"part\""));
    EXPECT_THROW(save(run / "sub", 1, {.model = bag}), PlacementError);
    EXPECT_THROW(load(run.path(), {.model = bag}), PlacementError);
  });
  EXPECT_TRUE(std::filesystem::is_empty(run.path()));
}

// Flips a bit in the last byte of each data file in turn.
void expect_flips_are_found(const std::string& run, Bag& bag) {
  for (const std::string& name : files_under(run)) {
    if (!name.ends_with(".safetensors")) continue;
    const std::string path = run + "/" + name;
    const std::string good = read_file(path);
    std::string bad = good;
    bad.back() = static_cast<char>(bad.back() ^ 0x10);
    write_file(path, bad);
    const auto block = (good.size() - 1) / (1 << 20);
    // With the smallest buffer the blocks before it have been used by then.
    const std::string message = error_of([&] { load(run, {.model = bag}, {.buffer_bytes = 1}); });
    EXPECT_THAT(message, HasSubstr(path));
    EXPECT_THAT(message, HasSubstr("block " + std::to_string(block) + " "));
    // Block 0 has the header: it is checked before anything is read into the model.
    EXPECT_THAT(message, HasSubstr(block == 0 ? "Nothing was overwritten" : "Overwritten by then"));
    EXPECT_THAT(message, HasSubstr("\"b\""));
    write_file(path, good);
  }
}

// pytorch#103306. A flipped bit in the last byte is found, whatever the size.
TEST(SaveLoad, EverySizeComesBackWholeAndAFlippedBitIsFound) {
  for (const int64_t size : {1, 511, 513, 4097, 1048575, 1048576, 1048577}) {
    Tensor bytes = Tensor::empty({size}, DType::kUInt8);
    for (int64_t i = 0; i < size; ++i) {
      bytes.data<uint8_t>()[i] = static_cast<uint8_t>(i * 7 + i / 251);
    }
    for (const int world : {1, 2}) {
      const TemporaryDirectory run;
      run_ranks(world, [&](comm::Comm& comm) {
        const DeviceMesh mesh(comm, {{"x", world}});
        Bag bag;
        bag.add("b", distribute(bytes, mesh, {Shard(0)}));
        save(run.path(), 1, {.model = bag});
      });
      Bag whole;
      const auto b = whole.add("b", DTensor(Tensor::zeros({size}, DType::kUInt8)));
      EXPECT_EQ(load(run.path(), {.model = whole}), 1);
      EXPECT_EQ(b.value().local_tensor().to_vector<uint8_t>(), bytes.to_vector<uint8_t>());
      expect_flips_are_found(run.path(), whole);
    }
  }
}

TEST(SaveLoad, MissingUnexpectedAndMismatchedAreListedAndNothingChanges) {
  // pytorch#148252, DeepSpeed#6691, torchtitan#3065
  const TemporaryDirectory run;
  Bag saved;
  saved.add("a", DTensor(counting({2})));
  saved.add("c", DTensor(counting({1})));
  save(run / "one", 1, {.model = saved});
  Bag model;
  const auto a = model.add("a", DTensor(Tensor::full({2}, 7)));
  const auto b = model.add("b", DTensor(Tensor::full({3}, 7)));
  EXPECT_THAT(error_of([&] { load(run / "one", {.model = model}); }),
              AllOf(HasSubstr("missing: b"), HasSubstr("Unexpected: c")));
  Bag longer;
  longer.add("a", DTensor(counting({3})));
  longer.add("b", DTensor(counting({3}).to(DType::kBFloat16)));
  save(run / "two", 1, {.model = longer});
  EXPECT_THAT(error_of([&] { load(run / "two", {.model = model}); }),
              AllOf(HasSubstr("f32[2]"), HasSubstr("f32[3]"), HasSubstr("bf16[3]")));
  EXPECT_EQ(a.value().local_tensor().to_vector<float>(), (std::vector<float>{7, 7}));
  EXPECT_EQ(b.value().local_tensor().to_vector<float>(), (std::vector<float>{7, 7, 7}));
}

TEST(SaveLoad, OptimizerStateGoesWithTheModel) {
  const TemporaryDirectory run;
  const auto make = [](comm::Comm& comm, const std::vector<Placement>& placements, Bag& bag) {
    const DeviceMesh mesh(comm, {{"x", comm.size()}});
    const Layout layout(mesh.layout(), {5, 3}, placements);
    const auto w = bag.add("w", distribute(counting({5, 3}), mesh, layout));
    w.value().set_requires_grad(true);
    return w;
  };
  run_ranks(3, [&](comm::Comm& comm) {
    Bag bag;
    const auto w = make(comm, {Shard(0)}, bag);
    optim::AdamW opt(bag.parameters(), {.lr = 0.1});
    w.value().set_grad(distribute(counting({5, 3}), w.value().mesh(), w.value().layout()));
    opt.step();
    opt.step();
    std::map<std::string, int64_t> numbers = {{"samples", 24}};
    save(run.path(), 2, {.model = bag, .optimizer = opt, .numbers = numbers});
  });
  const Found found = find_complete(run.path());
  ASSERT_TRUE(found.complete.has_value());
  std::set<std::string> names;
  for (const auto& [name, tensor] : found.complete->tensors) names.insert(name);
  EXPECT_EQ(names, (std::set<std::string>{"w", "optimizer.exp_avg.w", "optimizer.exp_avg_sq.w"}));
  run_ranks(2, [&](comm::Comm& comm) {
    Bag bag;
    const auto w = make(comm, {Shard(1)}, bag);
    optim::AdamW opt(bag.parameters(), {.lr = 0.1});
    std::map<std::string, int64_t> numbers = {{"samples", 0}};
    EXPECT_EQ(load(run.path(), {.model = bag, .optimizer = opt, .numbers = numbers}), 2);
    EXPECT_EQ(opt.steps(), 2);
    EXPECT_EQ(numbers.at("samples"), 24);
    // Two steps with the gradient g = 0..14: m = 0.9 (0.1 g) + 0.1 g = 0.19 g.
    for (const auto& s : opt.state()) {
      if (s.state != "exp_avg") continue;
      const auto got = full(s.value).to_vector<float>();
      for (int i = 0; i < 15; ++i) EXPECT_NEAR(got[static_cast<size_t>(i)], 0.19 * i, 1e-5);
    }
    // The model alone loads; an optimizer that the checkpoint has no state for does not.
    EXPECT_EQ(load(run.path(), {.model = bag}), 2);
  });
  Bag bag;
  bag.add("w", DTensor(counting({5, 3})));
  save(run / "model_only", 1, {.model = bag});
  optim::AdamW opt(bag.parameters(), {});
  EXPECT_THAT(error_of([&] { load(run / "model_only", {.model = bag, .optimizer = opt}); }),
              HasSubstr("missing: optimizer.exp_avg.w"));
}

TEST(SaveLoad, AFirstStartGivesNoneAndANamedStepThatIsNotThereAnError) {  // speculators#739
  const TemporaryDirectory run;
  Bag bag;
  bag.add("w", DTensor(counting({3})));
  EXPECT_EQ(load(run / "not_there", {.model = bag}), std::nullopt);
  EXPECT_EQ(load(run.path(), {.model = bag}), std::nullopt);
  std::filesystem::create_directories(run / "step-999.x");
  EXPECT_EQ(load(run.path(), {.model = bag}), std::nullopt);
  EXPECT_THAT(error_of([&] { load(run.path(), {.model = bag}, {.step = 999}); }),
              AllOf(HasSubstr("999"), HasSubstr("no commit record")));
  EXPECT_THAT(error_of([&] { load(run.path(), {.model = bag}, {.step = 7}); }),
              HasSubstr("step 7"));
  save(run.path(), 7, {.model = bag});
  save(run.path(), 8, {.model = bag});
  EXPECT_EQ(load(run.path(), {.model = bag}), 8);
  EXPECT_EQ(load(run.path(), {.model = bag}, {.step = 7}), 7);
  EXPECT_THROW(save(run.path(), -1, {.model = bag}), ArgumentError);
}

TEST(SaveLoad, TheLaterSaveOfAStepCountsAndNoByteOfTheEarlierChanges) {  // ezpz#196
  const TemporaryDirectory run;
  Bag bag;
  const auto w = bag.add("w", DTensor(Tensor::full({3}, 1)));
  save(run.path(), 20, {.model = bag});
  std::map<std::string, std::string> before;
  for (const std::string& name : files_under(run.path())) before[name] = read_file(run / name);
  kernels::fill(w.value().local_tensor(), 2);
  save(run.path(), 20, {.model = bag});
  for (const auto& [name, bytes] : before) EXPECT_EQ(read_file(run / name), bytes);
  kernels::fill(w.value().local_tensor(), 0);
  EXPECT_EQ(load(run.path(), {.model = bag}), 20);
  EXPECT_EQ(w.value().local_tensor().to_vector<float>(), (std::vector<float>{2, 2, 2}));
}

// KempnerForge#104: every rank has the same step, or an error.
TEST(SaveLoad, RankZeroChoosesAndAnErrorOnOneRankIsAnErrorOnAll) {
  const TemporaryDirectory run;
  save_at(run.path(), {{{"x", 3}}, {Shard(0)}}, counting({6}));
  run_ranks(3, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    Bag bag;
    bag.add("w", distribute(Tensor::zeros({6}), mesh, {Shard(0)}));
    const std::string blind = comm.rank() == 1 ? run / "elsewhere" : run.path();
    const std::string message = error_of([&] { load(blind, {.model = bag}); });
    EXPECT_THAT(message, HasSubstr(run / "elsewhere"));
    if (comm.rank() != 1) {
      EXPECT_THAT(message, HasSubstr("rank 1: "));
    }
    EXPECT_EQ(full(bag.parameters()[0].value()).to_vector<float>(), std::vector<float>(6, 0));
    // The Comm is still good.
    EXPECT_EQ(load(run.path(), {.model = bag}), 1);
    // It is no first start where rank 0 alone does not see the directory.
    const std::string lost = comm.rank() == 0 ? run / "elsewhere" : run.path();
    const std::string unseen = error_of([&] { load(lost, {.model = bag}); });
    EXPECT_THAT(unseen, AllOf(HasSubstr("step-1."), HasSubstr("rank 0 sees none")));
    if (comm.rank() == 0) {
      EXPECT_THAT(unseen, HasSubstr("rank 1: "));
    }
    EXPECT_THAT(error_of([&] { load(lost, {.model = bag}, {.step = 1}); }),
                AllOf(HasSubstr("elsewhere"), HasSubstr("no complete checkpoint of step 1")));
    EXPECT_EQ(load(run / "elsewhere", {.model = bag}), std::nullopt);
    EXPECT_EQ(load(run.path(), {.model = bag}, {.step = 1}), 1);
  });
}

// KempnerForge#49, pytorch#163548: no call of the Comm while saving.
TEST(SaveLoad, SavingSendsNothing) {
  const TemporaryDirectory run;
  run_ranks(3, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    Bag bag;
    bag.add("w", distribute(counting({7, 2}), mesh, {Shard(0)}));
    bag.add("r", distribute(counting({7, 2}), mesh, {Replicate()}));
    const int64_t calls = comm.counters().calls;
    save(run.path(), 1, {.model = bag});
    EXPECT_EQ(comm.counters().calls, calls);
  });
  EXPECT_TRUE(find_complete(run.path()).complete.has_value());
}

// A header that still says the same, but is not the one that was written.
TEST(SaveLoad, AHeaderThatWasChangedIsFoundBeforeItIsUsed) {
  const TemporaryDirectory run;
  Bag bag;
  const auto a = bag.add("abc", DTensor(counting({400, 1000})));  // data in blocks 0 and 1
  save(run.path(), 1, {.model = bag});
  const std::string path = run / *files_under(run.path()).rbegin();
  std::string bytes = read_file(path);
  const size_t padding = bytes.find("]}}") + 3;
  ASSERT_EQ(bytes[padding], ' ');
  bytes[padding] = '\n';
  write_file(path, bytes);
  kernels::fill(a.value().local_tensor(), 7);
  EXPECT_THAT(error_of([&] { load(run.path(), {.model = bag}); }),
              AllOf(HasSubstr("block 0"), HasSubstr("Nothing was overwritten")));
  EXPECT_EQ(a.value().local_tensor().data<float>()[0], 7);
}

TEST(SaveLoad, SmallBuffersReadTheSame) {
  const TemporaryDirectory run;
  const Tensor whole = counting({700, 1000});  // 2.7 MiB: three blocks
  save_at(run.path(), {{{"x", 1}}, {Replicate()}}, whole);
  run_ranks(3, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    Bag bag;
    const auto w = bag.add("w", distribute(Tensor::zeros({700, 1000}), mesh, {Shard(1)}));
    EXPECT_EQ(load(run.path(), {.model = bag}, {.buffer_bytes = 1}), 1);
    EXPECT_EQ(full(w.value()).to_vector<float>(), whole.to_vector<float>());
  });
}

}  // namespace
}  // namespace dtensor::checkpoint
