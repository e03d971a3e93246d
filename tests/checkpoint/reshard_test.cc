// Saved on a random mesh, loaded on another: every element by a plain loop, and the bytes read
// against what is needed.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/open_stored.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/sanitized.h"

namespace dtensor::checkpoint {
namespace {

using testing::Bag;
using testing::run_ranks;
using testing::TemporaryDirectory;

constexpr int kReshards = testing::kSanitized ? 40 : 300;

constexpr int64_t kBlock = 1 << 20;

struct Case {
  std::string name;
  Shape shape;
  DType dtype = DType::kUInt8;
};

// A mesh of some of the ranks of a world, and a placement for every tensor.
struct Side {
  int world = 1;
  std::vector<MeshDim> dims;
  std::vector<int> ranks;
  std::vector<std::vector<Placement>> placements;
};

class Reshards {
 public:
  explicit Reshards(uint32_t seed) : random_(seed) {
    const bool large = below(12) == 0;
    const std::vector<DType> dtypes = {DType::kUInt8, DType::kBFloat16, DType::kFloat32,
                                       DType::kInt64, DType::kBool};
    for (int i = 0; i < 4; ++i) {
      Case c{"t" + std::to_string(i), {}, dtypes[static_cast<size_t>(below(5))]};
      for (int d = below(5); d > 0; --d) c.shape.push_back(below(8) == 0 ? 0 : 1 + below(11));
      if (large && i == 0) c = {"t0", {700 + below(300), 1000 + below(900)}, DType::kFloat32};
      cases_.push_back(c);
    }
    from_ = side();
    to_ = side();
    shared_ = seed % 3 == 2;
  }

  Reshards(Case one, Side from, Side to)
      : cases_{std::move(one)}, from_(std::move(from)), to_(std::move(to)) {}

  void run() {
    const TemporaryDirectory run;
    run_ranks(from_.world, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, from_.dims, from_.ranks);
      Bag bag;
      for (size_t i = 0; i < cases_.size(); ++i) {
        const Layout layout(mesh.layout(), cases_[i].shape, from_.placements[i]);
        bag.add(cases_[i].name, distribute(whole(cases_[i]), mesh, layout));
      }
      save(run.path(), 1, {.model = bag});
    });
    run_ranks(to_.world, [&](comm::Comm& comm) { load_and_check(run.path(), comm); });
    check_bytes_read(open_stored(run.path()));
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }

  Side side() {
    Side s;
    const int ndim = 1 + below(3);
    for (int m = 0; m < ndim; ++m) {
      const int most = 8 / size_of_mesh(s);
      s.dims.push_back({"m" + std::to_string(m), 1 + below(std::min(most, 8))});
    }
    const int size = size_of_mesh(s);
    s.world = size + (size < 8 && below(4) == 0 ? 1 : 0);
    std::vector<int> ranks(static_cast<size_t>(s.world));
    for (int r = 0; r < s.world; ++r) ranks[static_cast<size_t>(r)] = r;
    if (below(2) == 0) std::ranges::shuffle(ranks, random_);
    s.ranks.assign(ranks.begin(), ranks.begin() + size);
    for (const Case& c : cases_) {
      std::vector<Placement> placements;
      for (int m = 0; m < ndim; ++m) {
        const bool cut = c.shape.ndim() > 0 && below(3) != 0;
        placements.push_back(cut ? Placement(Shard(below(c.shape.ndim()))) : Replicate());
      }
      s.placements.push_back(placements);
    }
    return s;
  }
  static int size_of_mesh(const Side& s) {
    int size = 1;
    for (const MeshDim& d : s.dims) size *= d.size;
    return size;
  }

  // The byte at a place of the whole tensor's memory.
  static unsigned char byte_at(const Case& c, int64_t at) {
    const auto x = static_cast<uint64_t>(at) * 0x9e3779b97f4a7c15U + c.name.back();
    return static_cast<unsigned char>(c.dtype == DType::kBool ? x >> 40 & 1 : x >> 40);
  }
  static Tensor whole(const Case& c) {
    Tensor t = Tensor::empty(c.shape, c.dtype);
    auto* bytes = static_cast<unsigned char*>(t.raw());
    for (int64_t i = 0; i < t.size_bytes(); ++i) bytes[i] = byte_at(c, i);
    return t;
  }

  void load_and_check(const std::string& run, comm::Comm& comm) {
    const DeviceMesh mesh(comm, to_.dims, to_.ranks);
    Bag bag;
    for (size_t i = 0; i < cases_.size(); ++i) {
      const Layout layout(mesh.layout(), cases_[i].shape, to_.placements[i]);
      bag.add(cases_[i].name,
              distribute(Tensor::full(cases_[i].shape, 1, cases_[i].dtype), mesh, layout));
    }
    LoadReport report;
    const LoadOptions options{.buffer_bytes = shared_ ? 3 * kBlock : 16 * kBlock,
                              .io_threads = 1 + comm.rank() % 3,
                              .reading = shared_ ? Reading::kOncePerHost : Reading::kByEachRank,
                              .host = host_of(comm.rank()),
                              .report = &report};
    EXPECT_EQ(load(run, {.model = bag}, options), 1);
    for (size_t i = 0; i < cases_.size(); ++i) {
      const DTensor value = bag.named_parameters()[i].second.value();
      if (!value.has_local()) continue;
      check(cases_[i], value.local_tensor(), value.layout().box_of(comm.rank()));
    }
    const std::lock_guard lock(mutex_);
    read_[host_of(comm.rank())] += report.bytes_read;
  }

  std::string host_of(int rank) const {
    return shared_ ? "host" + std::to_string(rank % 2) : "rank" + std::to_string(rank);
  }

  // Every block that has a needed byte is read once by those of a host, and no other; besides, each
  // rank reads the blocks of the headers of the files that it needs. A run of n bytes touches fewer
  // than n / block + 2 blocks, so this is below what is needed plus two blocks for each run.
  void check_bytes_read(const Contents& contents) {
    std::map<std::string, std::set<std::pair<int, int64_t>>> blocks;  // host -> (file, block)
    std::map<std::string, int64_t> want;
    for (int rank = 0; rank < to_.world; ++rank) {
      std::set<int> files;
      for (size_t i = 0; i < cases_.size(); ++i) {
        if (std::ranges::find(to_.ranks, rank) == to_.ranks.end()) continue;
        const MeshLayout mesh(to_.dims, to_.ranks);
        const Box box = Layout(mesh, cases_[i].shape, to_.placements[i]).box_of(rank);
        for (const StoredChunk& chunk : contents.tensors.at(cases_[i].name).chunks) {
          const int64_t element = size_of(cases_[i].dtype);
          for_each_row(chunk.box, intersect(chunk.box, box), [&](int64_t begin, int64_t end) {
            files.insert(chunk.file);
            const int64_t last = chunk.begin_bytes + end * element - 1;
            for (int64_t b = (chunk.begin_bytes + begin * element) / kBlock; b <= last / kBlock;
                 ++b) {
              blocks[host_of(rank)].insert({chunk.file, b});
            }
          });
        }
      }
      want[host_of(rank)] += 0;
      for (const int f : files) {
        const StoredFile& file = contents.files[static_cast<size_t>(f)];
        const int64_t header = safetensors::File(file.path).data_offset_bytes();
        want[host_of(rank)] += std::min(file.bytes, (header + kBlock - 1) / kBlock * kBlock);
      }
    }
    for (const auto& [host, all] : blocks) {
      for (const auto& [file, block] : all) {
        want[host] +=
            std::min(kBlock, contents.files[static_cast<size_t>(file)].bytes - block * kBlock);
      }
    }
    EXPECT_EQ(read_, want);
  }

  // f(begin, end): elements of the chunk's array, for every row of a part along its last dim.
  template <class F>
  static void for_each_row(const Box& chunk, const Box& part, F&& f) {
    if (part.empty()) return;
    const int ndim = part.size.ndim();
    const int64_t row = ndim == 0 ? 1 : part.size[ndim - 1];
    for (int64_t n = 0; n < part.numel(); n += row) {
      int64_t rest = n;
      int64_t at = 0;
      int64_t stride = 1;
      for (int d = ndim - 1; d >= 0; --d) {
        at += (rest % part.size[d] + part.offset[d] - chunk.offset[d]) * stride;
        rest /= part.size[d];
        stride *= chunk.size[d];
      }
      f(at, at + row);
    }
  }

  static void check(const Case& c, const Tensor& local, const Box& box) {
    ASSERT_EQ(local.shape(), box.size);
    const int64_t element = size_of(c.dtype);
    const auto* got = static_cast<const unsigned char*>(local.raw());
    std::vector<int64_t> at(static_cast<size_t>(box.size.ndim()), 0);
    int64_t wrong = 0;
    for (int64_t n = 0; n < box.numel(); ++n) {
      int64_t rest = n;
      int64_t global = 0;
      int64_t stride = 1;
      for (int d = box.size.ndim() - 1; d >= 0; --d) {
        global += (rest % box.size[d] + box.offset[d]) * stride;
        rest /= box.size[d];
        stride *= c.shape[d];
      }
      for (int64_t b = 0; b < element; ++b) {
        wrong += got[n * element + b] != byte_at(c, global * element + b) ? 1 : 0;
      }
    }
    EXPECT_EQ(wrong, 0);
  }

  std::mt19937 random_;
  std::vector<Case> cases_;
  Side from_;
  Side to_;
  bool shared_ = false;  // the ranks of a host read for each other
  std::mutex mutex_;
  std::map<std::string, int64_t> read_;  // by host; guarded by mutex_
};

// pytorch#103306, pytorch#108869, pytorch#161368, DeepSpeed#1070, pytorch#149640
TEST(Reshard, BetweenRandomMeshesIsBitExactAndReadsWhatIsNeeded) {
  for (uint32_t seed = 0; seed < kReshards; ++seed) {
    SCOPED_TRACE(seed);
    Reshards(seed).run();
    if (::testing::Test::HasFailure()) return;
  }
}

// The blocks between the parts of two rows are left out.
TEST(Reshard, OfRowsLongerThanBlocksReadsTheBlocksOfTheParts) {
  const Side rows{2, {{"x", 2}}, {0, 1}, {{Shard(0)}}};
  const Side columns{4, {{"y", 4}}, {0, 1, 2, 3}, {{Shard(1)}}};
  Reshards({"t0", {6, 5'000'000}, DType::kUInt8}, rows, columns).run();
}

}  // namespace
}  // namespace dtensor::checkpoint
