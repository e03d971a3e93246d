#include "dtensor/checkpoint/fill.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>

#include "dtensor/base/allocator.h"
#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/block_plan.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/checkpoint/tensor_file.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor::checkpoint {
namespace {

// Without CRCs to check, blocks only have to be large enough for the disk.
constexpr int64_t kPlainBlockBytes = 64 << 10;
// What stays in the cache from the read until it is copied out.
constexpr int64_t kMostAtOnceBytes = 4 << 20;
constexpr int64_t kConvertedAtOnce = 4096;                  // elements
constexpr int64_t kConversionBytes = kConvertedAtOnce * 8;  // of the largest dtype

// One file's part of the work.
struct FileWork {
  const FillSource* source = nullptr;
  std::span<const FillPiece> pieces;
  std::vector<BlockDemand> demands;  // one for each piece
  std::vector<BlockWindow> windows;
  int64_t block_bytes = 0;
  std::shared_ptr<ReadFile> file;  // open from the first window to the last; under the mutex
  size_t windows_left = 0;
};

class Filler {
 public:
  Filler(std::span<const FillSource> sources, std::span<const FillTarget> targets,
         std::span<const FillPiece> pieces, const FillOptions& options)
      : targets_(targets),
        threads_(std::max(1, options.threads)),
        window_bytes_(
            std::min(options.buffer_bytes / threads_ - kConversionBytes, kMostAtOnceBytes)),
        contiguous_(targets.size()),
        touched_(std::make_unique<std::atomic<bool>[]>(targets.size())) {
    for (size_t i = 0; i < targets.size(); ++i) {
      const Tensor& local = targets[i].local;
      contiguous_[i] = local.is_contiguous() ? local : local.clone();
    }
    for (size_t i = 0; i < pieces.size();) {
      const size_t begin = i;
      while (i < pieces.size() && pieces[i].source == pieces[begin].source) ++i;
      add_file(sources[static_cast<size_t>(pieces[begin].source)],
               pieces.subspan(begin, i - begin));
    }
  }

  FillResult run() {
    const auto allocator = Context::current().slot<CurrentAllocator>();
    std::vector<std::thread> helpers;
    const auto most = static_cast<int>(std::min<size_t>(order_.size(), 1U << 20));
    for (int i = 1; i < std::min(threads_, most); ++i) {
      helpers.emplace_back([&] {
        Context own;
        const ContextScope scope(own);
        own.slot<CurrentAllocator>() = allocator;
        work();
      });
    }
    work();
    for (std::thread& helper : helpers) helper.join();
    finish();
    if (failure_) throw CheckpointError(fmt::format("{}. {}", *failure_, overwritten()));
    return {bytes_read_};
  }

 private:
  // A worker's own memory.
  struct Scratch {
    Tensor window;
    Tensor elements[kDTypes];

    std::span<std::byte> bytes(int64_t size) {
      if (!window.defined() || window.numel() < size) {
        window = Tensor();
        window = Tensor::empty({size}, DType::kUInt8);
      }
      return {static_cast<std::byte*>(window.raw()), static_cast<size_t>(size)};
    }
    const Tensor& of(DType dtype) {
      Tensor& t = elements[static_cast<size_t>(dtype)];
      if (!t.defined()) t = Tensor::empty({kConvertedAtOnce}, dtype);
      return t;
    }
  };

  void add_file(const FillSource& source, std::span<const FillPiece> pieces) {
    FileWork work;
    work.source = &source;
    work.pieces = pieces;
    work.block_bytes = source.block_crcs.empty() ? kPlainBlockBytes : kBlockBytes;
    for (const FillPiece& p : pieces) {
      const FillTarget& target = targets_[static_cast<size_t>(p.target)];
      const int64_t element = size_of(target.stored);
      work.demands.push_back({p.begin_bytes, p.chunk.numel() * element, element,
                              BoxRuns(p.part, p.chunk, target.box),
                              target.stored == target.local.dtype()});
    }
    work.windows = plan_blocks(work.demands, {source.bytes, work.block_bytes, window_bytes_});
    work.windows_left = work.windows.size();
    const auto number = files_.size();
    for (size_t w = 0; w < work.windows.size(); ++w) order_.emplace_back(number, w);
    files_.push_back(std::move(work));
  }

  void work() {
    Scratch scratch;
    while (!stop_) {
      const size_t next = next_.fetch_add(1);
      if (next >= order_.size()) return;
      FileWork& file = files_[order_[next].first];
      const BlockWindow& window = file.windows[order_[next].second];
      try {
        const auto opened = open(file);
        window.direct ? read_direct(file, *opened, window)
                      : read_buffered(file, *opened, window, scratch);
        close(file);
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = e.what();
        stop_ = true;
      }
    }
  }

  // One file is open at a time for each thread, however many ranks have saved.
  std::shared_ptr<ReadFile> open(FileWork& work) {
    const std::lock_guard lock(mutex_);
    if (work.file == nullptr) {
      auto file = std::make_shared<ReadFile>(work.source->path);
      if (file->size_bytes() != work.source->bytes) {
        throw CheckpointError(fmt::format("{} has {} bytes now, it had {} just before",
                                          work.source->path, file->size_bytes(),
                                          work.source->bytes));
      }
      work.file = std::move(file);
    }
    return work.file;
  }
  void close(FileWork& work) {
    const std::lock_guard lock(mutex_);
    if (--work.windows_left == 0) work.file = nullptr;
  }

  // Block by block, so that the CRC finds the bytes in the cache.
  void read_checked(const FileWork& work, const ReadFile& file, const BlockWindow& window,
                    std::span<std::byte> into) {
    bytes_read_ += static_cast<int64_t>(into.size());
    if (work.source->block_crcs.empty()) {
      file.read(window.begin_bytes, into);
      return;
    }
    for (size_t done = 0; done < into.size();) {
      const auto bytes =
          into.subspan(done, std::min(static_cast<size_t>(work.block_bytes), into.size() - done));
      const int64_t begin = window.begin_bytes + static_cast<int64_t>(done);
      file.read(begin, bytes);
      const int64_t block = begin / work.block_bytes;
      if (crc32c(bytes) != work.source->block_crcs[static_cast<size_t>(block)]) {
        throw CheckpointError(fmt::format(
            "{}: the CRC of block {} (bytes [{}, +{})) is wrong: the file is damaged. It has "
            "values of \"{}\"",
            file.path(), block, begin, bytes.size(), name_in(work, window, begin, bytes.size())));
      }
      done += bytes.size();
    }
  }

  // The first tensor that takes something of a stretch of the file.
  const std::string& name_in(const FileWork& work, const BlockWindow& window, int64_t begin,
                             size_t size) const {
    const int64_t end = begin + static_cast<int64_t>(size);
    for (int i = window.first; i < window.last; ++i) {
      bool has = false;
      const BlockDemand& d = work.demands[static_cast<size_t>(i)];
      d.runs.for_each_in(element_at(d, begin), element_at(d, end + d.element_bytes - 1),
                         [&](const BoxRun&) { has = true; });
      if (has) return target_of(work, i).name;
    }
    return target_of(work, window.first).name;
  }

  static int64_t element_at(const BlockDemand& d, int64_t byte) {
    return (std::max(byte, d.begin_bytes) - d.begin_bytes) / d.element_bytes;
  }
  const FillTarget& target_of(const FileWork& work, int demand) const {
    return targets_[static_cast<size_t>(work.pieces[static_cast<size_t>(demand)].target)];
  }
  std::byte* bytes_of_target(const FileWork& work, int demand) const {
    const int target = work.pieces[static_cast<size_t>(demand)].target;
    return static_cast<std::byte*>(contiguous_[static_cast<size_t>(target)].raw());
  }
  void touch(const FileWork& work, int demand) {
    touched_[static_cast<size_t>(work.pieces[static_cast<size_t>(demand)].target)] = true;
  }

  void read_direct(const FileWork& work, const ReadFile& file, const BlockWindow& window) {
    const BlockDemand& d = work.demands[static_cast<size_t>(window.first)];
    const BoxRun run = d.runs.at(element_at(d, window.begin_bytes));
    // The window may begin inside an element.
    const int64_t skipped = window.begin_bytes - d.begin_bytes - run.src * d.element_bytes;
    std::byte* into = bytes_of_target(work, window.first) + run.dst * d.element_bytes + skipped;
    const std::span bytes(into, static_cast<size_t>(window.end_bytes - window.begin_bytes));
    touch(work, window.first);
    read_checked(work, file, window, bytes);
    check_bytes(bytes, target_of(work, window.first).stored, target_of(work, window.first).name);
  }

  void read_buffered(const FileWork& work, const ReadFile& file, const BlockWindow& window,
                     Scratch& scratch) {
    const auto bytes = scratch.bytes(window.end_bytes - window.begin_bytes);
    read_checked(work, file, window, bytes);
    for (int i = window.first; i < window.last; ++i) {
      const BlockDemand& d = work.demands[static_cast<size_t>(i)];
      d.runs.for_each_in(element_at(d, window.begin_bytes),
                         element_at(d, window.end_bytes + d.element_bytes - 1),
                         [&](const BoxRun& run) {
                           if (d.direct) {
                             copy(work, i, run, window, bytes);
                           } else {
                             convert(work, file, i, run, window, bytes, scratch);
                           }
                         });
    }
  }

  // The bytes of a run that lie in the window; elements may lie across its edges.
  void copy(const FileWork& work, int demand, const BoxRun& run, const BlockWindow& window,
            std::span<const std::byte> bytes) {
    const BlockDemand& d = work.demands[static_cast<size_t>(demand)];
    const int64_t run_begin = d.begin_bytes + run.src * d.element_bytes;
    const int64_t begin = std::max(run_begin, window.begin_bytes);
    const int64_t end = std::min(run_begin + run.count * d.element_bytes, window.end_bytes);
    if (begin >= end) return;
    const auto from = bytes.subspan(static_cast<size_t>(begin - window.begin_bytes),
                                    static_cast<size_t>(end - begin));
    check_bytes(from, target_of(work, demand).stored, target_of(work, demand).name);
    touch(work, demand);
    std::memcpy(bytes_of_target(work, demand) + run.dst * d.element_bytes + (begin - run_begin),
                from.data(), from.size());
  }

  // Elements that lie across the window's edges are read once more, by the window that they end in.
  void convert(const FileWork& work, const ReadFile& file, int demand, const BoxRun& run,
               const BlockWindow& window, std::span<const std::byte> bytes, Scratch& scratch) {
    const BlockDemand& d = work.demands[static_cast<size_t>(demand)];
    const FillTarget& target = target_of(work, demand);
    const DType into = target.local.dtype();
    const Tensor& from = scratch.of(target.stored);
    touch(work, demand);
    for (int64_t done = 0; done < run.count;) {
      const int64_t begin = d.begin_bytes + (run.src + done) * d.element_bytes;
      int64_t count = std::min(kConvertedAtOnce, run.count - done);
      if (begin < window.begin_bytes) {
        count = 1;
        file.read(begin,
                  {static_cast<std::byte*>(from.raw()), static_cast<size_t>(d.element_bytes)});
      } else {
        count = std::min(count, (window.end_bytes - begin) / d.element_bytes);
        if (count == 0) return;
        std::memcpy(from.raw(), bytes.data() + (begin - window.begin_bytes),
                    static_cast<size_t>(count * d.element_bytes));
      }
      // A Tensor of its own: other workers write to the same storage.
      std::byte* to = bytes_of_target(work, demand) + (run.dst + done) * size_of(into);
      kernels::cast(from.narrow(0, 0, count), Tensor::wrap(to, {count}, into, nullptr));
      done += count;
    }
  }

  // Strided tensors get their values, and every storage its new version.
  void finish() {
    for (size_t i = 0; i < targets_.size(); ++i) {
      if (!touched_[i]) continue;
      const Tensor& local = targets_[i].local;
      if (!local.is_contiguous()) kernels::copy(contiguous_[i], local);
      local.storage()->bump_version();
    }
  }

  std::string overwritten() const {
    constexpr int kMostListed = 20;
    std::string names;
    int count = 0;
    for (size_t i = 0; i < targets_.size(); ++i) {
      if (!touched_[i] || count++ >= kMostListed) continue;
      names += (names.empty() ? "" : ", ") + targets_[i].name;
    }
    if (count == 0) return "Nothing was overwritten";
    if (count > kMostListed) names += fmt::format(", and {} more", count - kMostListed);
    return "Overwritten by then, some perhaps in part: " + names;
  }

  std::span<const FillTarget> targets_;
  int threads_;
  int64_t window_bytes_;
  std::vector<Tensor> contiguous_;
  std::unique_ptr<std::atomic<bool>[]> touched_;  // by target
  std::vector<FileWork> files_;
  std::vector<std::pair<size_t, size_t>> order_;  // (file, window)
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> bytes_read_ = 0;
  std::mutex mutex_;  // guards FileWork::file, windows_left and failure_
  std::optional<std::string> failure_;
};

}  // namespace

FillResult fill(std::span<const FillSource> sources, std::span<const FillTarget> targets,
                std::vector<FillPiece> pieces, const FillOptions& options) {
  std::ranges::sort(
      pieces, {}, [](const FillPiece& p) { return std::tuple(p.source, p.begin_bytes, p.target); });
  return Filler(sources, targets, pieces, options).run();
}

}  // namespace dtensor::checkpoint
