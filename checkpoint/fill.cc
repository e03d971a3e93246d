#include "dtensor/checkpoint/fill.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include "dtensor/base/allocator.h"
#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/block_plan.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/checkpoint/fill_work.h"

namespace dtensor::checkpoint {
namespace {

// What stays in the cache from the read until it is copied out.
constexpr int64_t kMostAtOnceBytes = kBlockBytes;

// A file while it is read.
struct OpenFile {
  std::vector<BlockWindow> windows;
  std::shared_ptr<ReadFile> file;  // open from the first window to the last
  size_t windows_left = 0;
};

class Filler {
 public:
  Filler(FillWork& work, const FillOptions& options)
      : work_(work), threads_(std::max(1, options.threads)), open_(work.files().size()) {
    const int64_t window_bytes =
        std::min(options.buffer_bytes / threads_ - kConversionBytes, kMostAtOnceBytes);
    for (size_t i = 0; i < open_.size(); ++i) {
      const FileWork& file = work.files()[i];
      open_[i].windows =
          plan_blocks(file.demands, {file.source->bytes, file.block_bytes, window_bytes});
      open_[i].windows_left = open_[i].windows.size();
      for (size_t w = 0; w < open_[i].windows.size(); ++w) order_.emplace_back(i, w);
    }
  }

  FillResult run() {
    const auto allocator = Context::current().slot<CurrentAllocator>();
    std::vector<std::jthread> helpers;  // joined also where this thread throws
    const auto most = static_cast<int>(std::min<size_t>(order_.size(), 1U << 20));
    try {
      for (int i = 1; i < std::min(threads_, most); ++i) {
        helpers.emplace_back([&] {
          Context own;
          const ContextScope scope(own);
          own.slot<CurrentAllocator>() = allocator;
          read_windows();
        });
      }
    } catch (const std::system_error&) {
      // The system has no more threads: those that are there do the work.
    }
    read_windows();
    helpers.clear();
    work_.finish();
    if (failure_) throw CheckpointError(fmt::format("{}. {}", *failure_, work_.overwritten()));
    return {bytes_read_};
  }

 private:
  void read_windows() {
    FillScratch scratch;
    while (!stop_) {
      const size_t next = next_.fetch_add(1);
      if (next >= order_.size()) return;
      const auto [file, window] = order_[next];
      try {
        read(file, open_[file].windows[window], scratch);
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = e.what();
        stop_ = true;
      }
    }
  }

  void read(size_t index, const BlockWindow& window, FillScratch& scratch) {
    const FileWork& work = work_.files()[index];
    const auto file = open(index);
    const int64_t size = window.end_bytes - window.begin_bytes;
    const auto into = window.direct ? work_.place_of(work, window) : scratch.bytes(size);
    bytes_read_ += size;
    if (window.direct) {
      work_.read_checked(work, *file, window, into);
      work_.check_place(work, window, into);
    } else {
      file->read(window.begin_bytes, into);
      work_.deliver(work, *file, window, {into, !work.source->block_crcs.empty()}, scratch);
    }
    close(index);
  }

  // One file is open at a time for each thread, however many ranks have saved.
  std::shared_ptr<ReadFile> open(size_t index) {
    const std::lock_guard lock(mutex_);
    if (open_[index].file == nullptr) {
      open_[index].file = std::make_shared<ReadFile>(open_source(*work_.files()[index].source));
    }
    return open_[index].file;
  }
  void close(size_t index) {
    const std::lock_guard lock(mutex_);
    if (--open_[index].windows_left == 0) open_[index].file = nullptr;
  }

  FillWork& work_;
  int threads_;
  std::vector<OpenFile> open_;                    // by file; what changes under the mutex
  std::vector<std::pair<size_t, size_t>> order_;  // (file, window)
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> bytes_read_ = 0;
  std::mutex mutex_;  // also of failure_
  std::optional<std::string> failure_;
};

}  // namespace

void sort_pieces(std::vector<FillPiece>& pieces) {
  std::ranges::sort(
      pieces, {}, [](const FillPiece& p) { return std::tuple(p.source, p.begin_bytes, p.target); });
}

void check_io_threads(std::string_view who, int io_threads) {
  constexpr int kMost = 256;
  if (io_threads >= 1 && io_threads <= kMost) return;
  throw ArgumentError(fmt::format("{}: .io_threads is {}; give 1 to {}", who, io_threads, kMost));
}

FillResult fill(std::span<const FillSource> sources, std::span<const FillTarget> targets,
                std::vector<FillPiece> pieces, const FillOptions& options) {
  sort_pieces(pieces);
  FillWork work(sources, targets, pieces);
  return Filler(work, options).run();
}

}  // namespace dtensor::checkpoint
