#include "dtensor/base/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dtensor/base/address_sanitizer.h"
#include "dtensor/base/block_source.h"
#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/base/inline_text.h"
#include "dtensor/base/process.h"
#include "dtensor/base/small_memory.h"

namespace dtensor {
namespace {

// From this size on blocks begin at a large page and ask the kernel for such pages: one fault for
// 512, and products and weights that are read once find their addresses faster.
constexpr int64_t kLargePage = 2 << 20;
constexpr int64_t kSmallestOnLargePages = 2 * kLargePage;

std::align_val_t alignment_of(int64_t bytes) {
  return std::align_val_t{static_cast<size_t>(bytes >= kSmallestOnLargePages ? kLargePage : 64)};
}

// Smaller blocks the C++ heap keeps itself; larger ones it gives back to the kernel, and every page
// of the next one is a fault, which costs more than most kernels' work on it.
constexpr int64_t kSmallestKept = 128 * 1024;

// Larger ones are not taken from a BlockSource. At 4 MiB memory that is read in place is faster
// than the heap's, at 64 MiB hardly (bench/README.md, "Collectives"); nothing between was measured.
constexpr int64_t kLargestFromSource = int64_t{8} << 20;

void free_block(void* data, int64_t bytes) noexcept {
  ::operator delete(data, alignment_of(bytes));
}

// What is as large as that. From the heap, or a BlockSource's: then `owner` gives it back.
struct Block {
  void* data = nullptr;
  int64_t bytes = 0;
  std::shared_ptr<void> owner = {};
  std::weak_ptr<BlockSource> source = {};
  int64_t process = 0;  // that took it from the source

  bool is_of(const std::weak_ptr<BlockSource>& s) const {
    return !source.owner_before(s) && !s.owner_before(source);
  }
  // What nobody reads in place any more is memory as any other, and keeps more than itself. And a
  // process that was forked must not take again what the other one may take.
  bool has_ended() const {
    return owner != nullptr && (source.expired() || process != internal::process_id());
  }
};

void free_block(const Block& block) noexcept {
  if (block.owner == nullptr) free_block(block.data, block.bytes);
}

// Of blocks that are large enough to matter when memory is out, what for they were asked.
using OpName = InlineText<23>;

// What is live and what is kept never exceed the peak of what was live: the oldest blocks go first.
class HeapAllocator final : public Allocator {
 public:
  explicit HeapAllocator(const AllocatorOptions& options) : options_(options) {}
  ~HeapAllocator() override { keep_at_most(0); }

  void* allocate(int64_t bytes) override {
    if (bytes < 0 || bytes > options_.most_bytes - live_.load(std::memory_order_relaxed)) {
      out_of_memory(bytes);
    }
    void* data = bytes <= kSmall ? small(bytes) : large(bytes);
    if (data == nullptr) out_of_memory(bytes);
    // Exact where one thread asks; threads that ask at one time may miss a higher peak between
    // them.
    const int64_t live = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (live > peak_.load(std::memory_order_relaxed)) peak_.store(live, std::memory_order_relaxed);
    allocations_.fetch_add(1, std::memory_order_relaxed);
    return data;
  }

  void deallocate(void* data, int64_t bytes) noexcept override {
    live_.fetch_sub(bytes, std::memory_order_relaxed);
    if (bytes <= kSmall) return small_deallocate(data, static_cast<size_t>(bytes));
    if (bytes < kSmallestKept) return free_block(data, bytes);
    const std::lock_guard lock(mutex_);
    const auto use = in_use_.find(data);
    const Block block = std::move(use->second.block);
    in_use_.erase(use);
    if (kAddressSanitizer || block.has_ended()) return free_block(block);
    try {
      kept_.push_back(block);
      kept_bytes_ += bytes;
    } catch (const std::bad_alloc&) {
      free_block(block);
    }
  }

  AllocatorStats stats() const override {
    const std::lock_guard lock(mutex_);
    return {live_, peak_, allocations_, live_ + kept_bytes_};
  }

  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    keep_at_most(0);
    peak_ = live_.load();
  }

 private:
  static constexpr int64_t kSmall = kMostSmallBytes;

  static void* small(int64_t bytes) {
    try {
      return small_allocate(static_cast<size_t>(bytes));
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  static void* from_heap(int64_t bytes) {
    void* data = ::operator new(static_cast<size_t>(bytes), alignment_of(bytes), std::nothrow);
    if (data != nullptr && bytes >= kSmallestOnLargePages) {
      // Whole ones, so that no more memory is taken. A kernel without them says no.
      static_cast<void>(
          madvise(data, static_cast<size_t>(bytes / kLargePage * kLargePage), MADV_HUGEPAGE));
    }
    return data;
  }

  void* large(int64_t bytes) {
    if (bytes < kSmallestKept) return from_heap(bytes);
    Context& context = Context::current();
    std::shared_ptr<BlockSource> source = context.slot<LargeBlocks>().source.lock();
    const std::lock_guard lock(mutex_);
    drop_ended();
    if (bytes > kLargestFromSource) source = nullptr;
    Block block = take_kept(bytes, [&](const Block& b) { return b.is_of(source); });
    if (block.data == nullptr && source != nullptr && source->has_room(bytes)) {
      if (std::shared_ptr<void> data = source->take(bytes)) {
        block = {data.get(), bytes, data, source, internal::process_id()};
        keep_at_most(peak_ - live_ - bytes);
      }
    }
    if (block.data == nullptr) block = take_kept(bytes, [](const Block&) { return true; });
    if (block.data == nullptr) {
      keep_at_most(peak_ - live_ - bytes);
      block = {from_heap(bytes), bytes};
    }
    if (block.data == nullptr) {
      keep_at_most(0);
      block = {from_heap(bytes), bytes};
    }
    if (block.data == nullptr) return nullptr;
    const std::string_view op = context.slot<MemoryUser>().op;
    void* data = block.data;
    in_use_[data] = {std::move(block), OpName(op.substr(0, 23))};
    return data;
  }

  [[noreturn]] void out_of_memory(int64_t bytes) {
    const int rank = Context::current().slot<MemoryUser>().rank;
    const std::string_view op = Context::current().slot<MemoryUser>().op;
    const std::lock_guard lock(mutex_);
    std::string text = "out of memory on rank " + std::to_string(rank) + ": " +
                       (op.empty() ? "" : std::string(op) + " ") + "asked for " +
                       std::to_string(bytes) + " bytes with " + std::to_string(live_) +
                       " live (peak " + std::to_string(peak_) + ")";
    if (options_.most_bytes < std::numeric_limits<int64_t>::max()) {
      text += ", of at most " + std::to_string(options_.most_bytes);
    }
    throw Error(text + holders_text());
  }

  // "; largest holders: matmul 4096 bytes in 2 blocks, ..."
  std::string holders_text() const {
    struct Holder {
      int64_t bytes = 0;
      int64_t blocks = 0;
    };
    std::map<std::string_view, Holder> by_op;
    for (const auto& [data, use] : in_use_) {
      Holder& holder = by_op[use.op.empty() ? std::string_view("no op") : use.op.view()];
      holder.bytes += use.block.bytes;
      ++holder.blocks;
    }
    std::vector<std::pair<std::string_view, Holder>> largest(by_op.begin(), by_op.end());
    std::ranges::stable_sort(largest, std::greater(), [](const auto& h) { return h.second.bytes; });
    if (largest.size() > 5) largest.resize(5);
    std::string text;
    for (const auto& [op, holder] : largest) {
      text += (text.empty() ? "; largest holders: " : ", ") + std::string(op) + " " +
              std::to_string(holder.bytes) + " bytes in " + std::to_string(holder.blocks) +
              (holder.blocks == 1 ? " block" : " blocks");
    }
    return text;
  }

  // The newest kept block of this size that will do, which the caches may still hold; empty where
  // there is none.
  template <class F>
  Block take_kept(int64_t bytes, const F& will_do) {
    const auto found = std::find_if(kept_.rbegin(), kept_.rend(), [&](const Block& block) {
      return block.bytes == bytes && will_do(block);
    });
    if (found == kept_.rend()) return {};
    Block block = std::move(*found);
    kept_.erase(std::next(found).base());
    kept_bytes_ -= bytes;
    return block;
  }

  void drop_ended() noexcept {
    std::erase_if(kept_, [&](const Block& block) {
      if (!block.has_ended()) return false;
      kept_bytes_ -= block.bytes;
      return true;
    });
  }

  void keep_at_most(int64_t bytes) noexcept {
    size_t gone = 0;
    for (; kept_bytes_ > bytes && gone < kept_.size(); ++gone) {
      free_block(kept_[gone]);
      kept_bytes_ -= kept_[gone].bytes;
    }
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(gone));
  }

  struct Use {
    Block block;
    OpName op;
  };

  const AllocatorOptions options_;
  std::atomic<int64_t> live_{0};
  std::atomic<int64_t> peak_{0};
  std::atomic<int64_t> allocations_{0};
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Block> kept_;  // oldest first
  int64_t kept_bytes_ = 0;
  std::unordered_map<const void*, Use> in_use_;  // of the sizes that are kept
};

}  // namespace

std::shared_ptr<Allocator> make_heap_allocator(const AllocatorOptions& options) {
  return std::make_shared<HeapAllocator>(options);
}

}  // namespace dtensor
