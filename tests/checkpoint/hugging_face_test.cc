// Hugging Face directories: imported onto meshes, exported, and refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <new>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/file_system.h"
#include "dtensor/checkpoint/open_stored.h"
#include "dtensor/checkpoint/tensor_file.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/recording_file_system.h"
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

constexpr char kGolden[] = "tests/data/uneven";  // written by PyTorch; nothing divides

Bag& fill_bag(Bag& bag, const std::map<std::string, Tensor>& like, const DeviceMesh& mesh,
              const std::vector<Placement>& placements) {
  for (const auto& [name, tensor] : like) {
    std::vector<Placement> fitting = placements;
    for (Placement& p : fitting) {
      if (p.is_shard() && p.dim() >= tensor.ndim()) p = Replicate();
    }
    bag.add(name, distribute(Tensor::full(tensor.shape(), 7), mesh, fitting));
  }
  return bag;
}

TEST(HuggingFace, ImportsOntoAnyMeshAndExportsTheSameAgain) {
  const auto golden = read_tensors(std::string(kGolden) + "/model.safetensors");
  const std::vector<std::pair<std::vector<MeshDim>, std::vector<Placement>>> cases = {
      {{{"x", 1}}, {Replicate()}},
      {{{"x", 3}}, {Shard(0)}},
      {{{"x", 4}}, {Shard(1)}},
      {{{"dp", 2}, {"tp", 2}}, {Shard(0), Shard(1)}},
      {{{"dp", 2}, {"tp", 2}}, {Shard(0), Shard(0)}}};
  for (const auto& [dims, placements] : cases) {
    int world = 1;
    for (const MeshDim& d : dims) world *= d.size;
    const TemporaryDirectory out;
    run_ranks(world, [&, &dims = dims, &placements = placements](comm::Comm& comm) {
      const DeviceMesh mesh(comm, dims);
      Bag bag;
      fill_bag(bag, golden, mesh, placements);
      import_hugging_face(kGolden, bag, {.buffer_bytes = 100'000});
      export_hugging_face(out.path(), bag, {.config_json = "{}"});
    });
    EXPECT_EQ(files_under(out.path()), (std::set<std::string>{"config.json", "model.safetensors"}));
    const auto back = read_tensors(out / "model.safetensors");
    ASSERT_EQ(back.size(), golden.size());
    for (const auto& [name, tensor] : golden) {
      EXPECT_EQ(back.at(name).shape(), tensor.shape());
      EXPECT_EQ(back.at(name).to_vector<float>(), tensor.to_vector<float>()) << name;
    }
  }
}

TEST(HuggingFace, ConvertsBetweenFloatingTypesOnly) {
  const TemporaryDirectory dir;
  write_tensors(dir / "model.safetensors", {{"w", Tensor::of<float>({1.00390625F, -2, 3}, {3})}});
  Bag bag;
  const auto w = bag.add("w", DTensor(Tensor::zeros({3}, DType::kBFloat16)));
  import_hugging_face(dir.path(), bag);
  // 1 + 2^-8 lies between two bfloat16 and goes to the even one.
  EXPECT_EQ(w.value().local_tensor().to(DType::kFloat32).to_vector<float>(),
            (std::vector<float>{1, -2, 3}));
  export_hugging_face(dir.path(), bag);
  Bag wide;
  const auto f = wide.add("w", DTensor(Tensor::zeros({3})));
  import_hugging_face(dir.path(), wide);
  EXPECT_EQ(f.value().local_tensor().to_vector<float>(), (std::vector<float>{1, -2, 3}));
  Bag whole;
  whole.add("w", DTensor(Tensor::zeros({3}, DType::kInt32)));
  EXPECT_THAT(error_of<CheckpointError>([&] { import_hugging_face(dir.path(), whole); }),
              AllOf(HasSubstr("i32[3]"), HasSubstr("bf16[3]")));
}

// A model of two tensors, and a directory with an index and two files.
class Indexed : public ::testing::Test {
 protected:
  Indexed() {
    write_tensors(dir_ / "one.safetensors", {{"a", Tensor::of<float>({1, 2}, {2})}});
    write_tensors(dir_ / "two.safetensors", {{"b", Tensor::of<float>({3}, {1})}});
    index(
        R"({"metadata":{"total_size":12},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
    bag_.add("a", DTensor(Tensor::zeros({2})));
    bag_.add("b", DTensor(Tensor::zeros({1})));
  }
  void index(std::string_view text) { write_file(dir_ / "model.safetensors.index.json", text); }
  std::string import_error() {
    return error_of<CheckpointError>([&] { import_hugging_face(dir_.path(), bag_); });
  }
  std::vector<float> values(int i) {
    return bag_.parameters()[static_cast<size_t>(i)].value().local_tensor().to_vector<float>();
  }

  TemporaryDirectory dir_;
  Bag bag_;
};

TEST_F(Indexed, LoadsEveryTensorFromItsFile) {
  EXPECT_EQ(import_error(), "");
  EXPECT_EQ(values(0), (std::vector<float>{1, 2}));
  EXPECT_EQ(values(1), (std::vector<float>{3}));
}

TEST_F(Indexed, FollowsTheUsersLinks) {
  std::filesystem::create_directories(dir_ / "blobs");
  std::filesystem::rename(dir_ / "one.safetensors", dir_ / "blobs/f00");
  std::filesystem::create_symlink("blobs/f00", dir_ / "one.safetensors");
  EXPECT_EQ(import_error(), "");
  EXPECT_EQ(values(0), (std::vector<float>{1, 2}));
}

// transformers#47176, sglang#32279
TEST_F(Indexed, RefusesAnIndexThatIsNotTrue) {
  const std::filesystem::path elsewhere = dir_ / "d";
  std::filesystem::create_directories(elsewhere);
  std::filesystem::copy(dir_ / "two.safetensors", elsewhere / "w.safetensors");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"weight_map":{"a":"one.safetensors","b":"../w.safetensors"}})", "plain name"},
      {R"({"weight_map":{"a":"one.safetensors","b":"/x/w.safetensors"}})", "plain name"},
      {R"({"weight_map":{"a":"one.safetensors","b":"d/w.safetensors"}})", "plain name"},
      {R"({"weight_map":{"a":"one.safetensors","b":""}})", "plain name"},
      {R"({"weight_map":{"a":"one.safetensors","b":".."}})", "plain name"},
      {R"({"weight_map":{"a":"one.safetensors","b":"three.safetensors"}})", "three.safetensors"},
      {R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})", "none of that name"},
      {R"({"weight_map":{"a":"two.safetensors","b":"one.safetensors"}})", "none of that name"},
      {R"({"weight_map":{"a":"one.safetensors"}})", "missing: b"},
      {R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors","c":"two.safetensors"}})",
       "\"c\""},
      {R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors","\u0061":"two.safetensors"}})",
       "twice"},
      {R"({"weight_map":{"a":1}})", "not a text"},
      {R"({"weight_map":["a"]})", "not an object"},
      {R"({"metadata":{}})", "weight_map"},
      {R"({"weight_map":)", "ends too early"},
      {R"({"metadata":)" + std::string(100000, '['), "nested"},
      {std::string(100000, '['), "not an object"},
      {"", "ends too early"}};
  for (const auto& [text, says] : cases) {
    index(text);
    EXPECT_THAT(import_error(), HasSubstr(says)) << text.substr(0, 100);
    EXPECT_EQ(values(0), (std::vector<float>{0, 0}));
  }
}

TEST_F(Indexed, ATensorInTwoFilesOrOutsideTheIndexIsRefused) {
  write_tensors(dir_ / "two.safetensors",
                {{"a", Tensor::of<float>({9, 9}, {2})}, {"b", Tensor::of<float>({3}, {1})}});
  EXPECT_THAT(import_error(), AllOf(HasSubstr("one.safetensors"), HasSubstr("two.safetensors")));
  write_tensors(dir_ / "two.safetensors",
                {{"b", Tensor::of<float>({3}, {1})}, {"extra", Tensor::of<float>({3}, {1})}});
  EXPECT_THAT(import_error(), HasSubstr("\"extra\""));
}

TEST(HuggingFace, ThreadsThatAreNoNumberOfThemAreAnErrorOnAllRanks) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    Bag bag;
    const auto tensors = read_tensors(std::string(kGolden) + "/model.safetensors");
    fill_bag(bag, tensors, mesh, {Shard(0)});
    for (const int threads : {0, -1, 257}) {
      const int mine = comm.rank() == 1 ? threads : 2;
      try {
        import_hugging_face(kGolden, bag, {.io_threads = mine});
        ADD_FAILURE();
      } catch (const ArgumentError& e) {
        EXPECT_EQ(comm.rank(), 1);
        EXPECT_THAT(e.what(), HasSubstr("import_hugging_face: .io_threads"));
      } catch (const CheckpointError& e) {
        EXPECT_NE(comm.rank(), 1);
        EXPECT_THAT(e.what(), HasSubstr("rank 1: checkpoint::import_hugging_face: .io_threads"));
      }
    }
    import_hugging_face(kGolden, bag, {.io_threads = 256});
  });
}

TEST(HuggingFace, ManyFilesNeedFewDescriptors) {
  constexpr int kFiles = 100;
  const TemporaryDirectory dir;
  std::string map;
  Bag bag;
  for (int i = 0; i < kFiles; ++i) {
    const std::string number = std::to_string(i);
    write_tensors(dir / ("f" + number), {{"t" + number, Tensor::full({3}, i)}});
    map += (i == 0 ? "\"t" : ",\"t") + number + "\":\"f" + number + "\"";
    bag.add("t" + number, DTensor(Tensor::zeros({3})));
  }
  write_file(dir / "model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  rlimit old_limit = {};
  getrlimit(RLIMIT_NOFILE, &old_limit);
  const rlimit limit = {60, old_limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &limit);
  const std::string error = error_of([&] {
    import_hugging_face(dir.path(), bag);
    open_stored(dir.path());
  });
  setrlimit(RLIMIT_NOFILE, &old_limit);
  EXPECT_EQ(error, "");
  for (int i = 0; i < kFiles; ++i) {
    const auto p = bag.parameters()[static_cast<size_t>(i)];
    EXPECT_EQ(p.value().local_tensor().to_vector<float>(),
              std::vector<float>(3, static_cast<float>(i)));
  }
}

TEST(HuggingFace, OfATiedParameterOneNameIsEnough) {
  for (const char* stored : {"embed", "head"}) {
    const TemporaryDirectory dir;
    write_tensors(dir / "model.safetensors", {{stored, Tensor::of<float>({4, 5}, {2})}});
    Bag bag;
    const auto embed = bag.add("embed", DTensor(Tensor::zeros({2})));
    bag.tie("head", embed);
    import_hugging_face(dir.path(), bag);
    EXPECT_EQ(embed.value().local_tensor().to_vector<float>(), (std::vector<float>{4, 5}));
    export_hugging_face(dir.path(), bag);
    EXPECT_EQ(read_tensors(dir / "model.safetensors").size(), 1U);
    EXPECT_EQ(read_tensors(dir / "model.safetensors").count("embed"), 1U);
  }
}

TEST(HuggingFace, AnErrorOnOneRankIsAnErrorOnAll) {
  const TemporaryDirectory dir;
  write_tensors(dir / "model.safetensors", {{"w", Tensor::of<float>({1, 2, 3}, {3})}});
  run_ranks(3, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    Bag bag;
    bag.add("w", distribute(Tensor::zeros({3}), mesh, {Shard(0)}));
    const std::string from = comm.rank() == 2 ? dir / "none" : dir.path();
    EXPECT_THAT(error_of<CheckpointError>([&] { import_hugging_face(from, bag); }),
                HasSubstr(dir / "none"));
    // Rank 0 cannot make the directory; the others learn it.
    write_file(dir / "file", "");
    EXPECT_THAT(error_of<CheckpointError>([&] { export_hugging_face(dir / "file/sub", bag); }),
                HasSubstr("cannot make the directory"));
    import_hugging_face(dir.path(), bag);  // the Comm is still good
    EXPECT_EQ(full(bag.parameters()[0].value()).to_vector<float>(), (std::vector<float>{1, 2, 3}));
  });
}

TEST(HuggingFace, ExportOverTheFileThatTheValuesCameFrom) {  // safetensors#762
  const TemporaryDirectory dir;
  write_tensors(dir / "model.safetensors", {{"w", Tensor::of<float>({1, 2}, {2})}});
  Bag bag;
  bag.add("w", DTensor(Tensor::zeros({2})));
  import_hugging_face(dir.path(), bag);
  export_hugging_face(dir.path(), bag);
  EXPECT_EQ(read_tensors(dir / "model.safetensors").at("w").to_vector<float>(),
            (std::vector<float>{1, 2}));
}

// Directories are synced, and of a file that was not asked for nothing is made.
TEST(HuggingFace, ExportMakesDirectoriesDurablyAndOnlyTheFilesAskedFor) {
  const TemporaryDirectory dir;
  Bag bag;
  bag.add("w", DTensor(Tensor::zeros({2})));
  const auto system = std::make_shared<testing::RecordingFileSystem>();
  const ScopedSlot<CurrentFileSystem> scope({system});
  export_hugging_face(dir / "a/b", bag);
  std::vector<std::string> made;
  std::set<std::string> synced;
  for (const testing::FileCall& c : system->calls()) {
    EXPECT_EQ(c.path.find("config.json"), std::string::npos);
    if (c.kind == testing::FileCall::Kind::kMakeDirectory) made.push_back(c.path);
    if (c.kind == testing::FileCall::Kind::kSyncDirectory) synced.insert(c.path);
  }
  EXPECT_EQ(made, (std::vector<std::string>{dir / "a", dir / "a/b"}));
  EXPECT_TRUE(synced.contains(dir.path()) && synced.contains(dir / "a"));
}

// Whatever the writing rank meets: the others do not wait for it.
TEST(HuggingFace, AnyExceptionOfTheWritingRankIsAnErrorOnAll) {
  const TemporaryDirectory dir;
  run_ranks(2, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    Bag bag;
    bag.add("w", distribute(Tensor::zeros({4}), mesh, {Shard(0)}));
    const auto system =
        std::make_shared<testing::RecordingFileSystem>([](const testing::FileCall& call) -> int {
          if (call.kind == testing::FileCall::Kind::kCreate) throw std::bad_alloc();
          return 0;
        });
    const ScopedSlot<CurrentFileSystem> scope({system});
    EXPECT_THAT(error_of<CheckpointError>([&] { export_hugging_face(dir.path(), bag); }),
                HasSubstr("bad_alloc"));
  });
}

// A disk that fills up half-way, by a limit on the size of files.
TEST(HuggingFace, AFailedExportLeavesTheOldFileAndNoTemporary) {  // burn#5479
  const TemporaryDirectory dir;
  write_tensors(dir / "model.safetensors", {{"w", Tensor::of<float>({1, 2}, {2})}});
  const std::string before = read_file(dir / "model.safetensors");
  Bag bag;
  for (int i = 0; i < 4; ++i) {
    bag.add("w" + std::to_string(i), DTensor(Tensor::full({300'000}, i)));
  }
  (void)signal(SIGXFSZ, SIG_IGN);
  struct rlimit old_limit = {};
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const struct rlimit limit = {2'000'000, old_limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  const std::string message = error_of<CheckpointError>(
      [&] { export_hugging_face(dir.path(), bag, {.config_json = "{}"}); });
  const std::string save_message =
      error_of<CheckpointError>([&] { save(dir / "run", 3, {.model = bag}); });
  setrlimit(RLIMIT_FSIZE, &old_limit);
  EXPECT_THAT(message, AllOf(HasSubstr("write"), HasSubstr("File too large")));
  EXPECT_THAT(save_message, AllOf(HasSubstr("write"), HasSubstr("File too large")));
  EXPECT_EQ(read_file(dir / "model.safetensors"), before);
  EXPECT_EQ(files_under(dir.path()), std::set<std::string>{"model.safetensors"});
  EXPECT_EQ(load(dir / "run", {.model = bag}), std::nullopt);
}

}  // namespace
}  // namespace dtensor::checkpoint
