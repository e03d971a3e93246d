#include "dtensor/checkpoint/fill_work.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/tensor_file.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor::checkpoint {
namespace {

// The first element of a chunk that ends behind a byte of the file.
int64_t element_at(const BlockDemand& d, int64_t byte) {
  return (std::max(byte, d.begin_bytes) - d.begin_bytes) / d.element_bytes;
}

// The runs of a demand that have bytes in a window.
template <class F>
void for_each_run(const BlockDemand& d, const BlockWindow& window, F&& f) {
  d.runs.for_each_in(element_at(d, window.begin_bytes),
                     element_at(d, window.end_bytes + d.element_bytes - 1), f);
}

}  // namespace

void WindowBytes::see(size_t end) {
  if (end <= seen_) return;
  // Short stretches would take their CRC at a tenth of the speed.
  constexpr size_t kLeastBytes = 4096;
  const size_t size = std::min(std::max(end - seen_, kLeastBytes), all_.size() - seen_);
  crc_ = crc32c(all_.subspan(seen_, size), crc_);
  seen_ += size;
}

std::span<std::byte> FillScratch::bytes(int64_t size) {
  if (!window_.defined() || window_.numel() < size) {
    window_ = Tensor();  // first, so that never both are there
    window_ = Tensor::empty({size}, DType::kUInt8);
  }
  return {static_cast<std::byte*>(window_.raw()), static_cast<size_t>(size)};
}

const Tensor& FillScratch::elements(DType dtype) {
  Tensor& t = elements_[static_cast<size_t>(dtype)];
  if (!t.defined()) t = Tensor::empty({kConvertedAtOnce}, dtype);
  return t;
}

ReadFile open_source(const FillSource& source) {
  ReadFile file(source.path);
  if (file.size_bytes() == source.bytes) return file;
  throw CheckpointError(fmt::format("{} has {} bytes now, it had {} just before", source.path,
                                    file.size_bytes(), source.bytes));
}

FillWork::FillWork(std::span<const FillSource> sources, std::span<const FillTarget> targets,
                   std::span<const FillPiece> pieces)
    : targets_(targets),
      contiguous_(targets.size()),
      touched_(std::make_unique<std::atomic<bool>[]>(targets.size())) {
  for (size_t i = 0; i < targets.size(); ++i) {
    const Tensor& local = targets[i].local;
    contiguous_[i] = local.is_contiguous() ? local : local.clone();
  }
  for (size_t i = 0; i < pieces.size();) {
    FileWork work;
    work.number = pieces[i].source;
    work.source = &sources[static_cast<size_t>(work.number)];
    work.block_bytes = work.source->block_crcs.empty() ? kPlainBlockBytes : kBlockBytes;
    const size_t begin = i;
    for (; i < pieces.size() && pieces[i].source == work.number; ++i) {
      const FillPiece& p = pieces[i];
      const FillTarget& target = targets[static_cast<size_t>(p.target)];
      const int64_t element = size_of(target.stored);
      work.demands.push_back({p.begin_bytes, p.chunk.numel() * element, element,
                              BoxRuns(p.part, p.chunk, target.box),
                              target.stored == target.local.dtype()});
    }
    work.pieces = pieces.subspan(begin, i - begin);
    files_.push_back(std::move(work));
  }
}

void FillWork::read_checked(const FileWork& work, const ReadFile& file, const BlockWindow& window,
                            std::span<std::byte> into) const {
  if (work.source->block_crcs.empty()) {
    file.read(window.begin_bytes, into);
    return;
  }
  for (size_t done = 0; done < into.size();) {
    const auto bytes =
        into.subspan(done, std::min(static_cast<size_t>(work.block_bytes), into.size() - done));
    const int64_t begin = window.begin_bytes + static_cast<int64_t>(done);
    file.read(begin, bytes);
    compare(work, window, begin, bytes.size(), crc32c(bytes));
    done += bytes.size();
  }
}

void FillWork::compare(const FileWork& work, const BlockWindow& window, int64_t begin_bytes,
                       size_t size, uint32_t crc) const {
  const int64_t block = begin_bytes / work.block_bytes;
  if (crc == work.source->block_crcs[static_cast<size_t>(block)]) return;
  throw CheckpointError(fmt::format(
      "{}: the CRC of block {} (bytes [{}, +{})) is wrong: the file is damaged. It has "
      "values of \"{}\"",
      work.source->path, block, begin_bytes, size, name_in(work, window, begin_bytes, size)));
}

void FillWork::compare_all(const FileWork& work, const BlockWindow& window,
                           WindowBytes& bytes) const {
  if (!bytes.unchecked()) return;
  compare(work, window, window.begin_bytes,
          static_cast<size_t>(window.end_bytes - window.begin_bytes), bytes.crc());
}

// The first tensor that takes something of a stretch of the file.
const std::string& FillWork::name_in(const FileWork& work, const BlockWindow& window, int64_t begin,
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

const FillTarget& FillWork::target_of(const FileWork& work, int demand) const {
  return targets_[static_cast<size_t>(work.pieces[static_cast<size_t>(demand)].target)];
}

std::byte* FillWork::bytes_of_target(const FileWork& work, int demand) const {
  const int target = work.pieces[static_cast<size_t>(demand)].target;
  return static_cast<std::byte*>(contiguous_[static_cast<size_t>(target)].raw());
}

void FillWork::touch(const FileWork& work, int demand) {
  // Read after the threads were joined. A store that orders others would wait until all values
  // written before it have left the processor.
  touched_[static_cast<size_t>(work.pieces[static_cast<size_t>(demand)].target)].store(
      true, std::memory_order_relaxed);
}

std::span<std::byte> FillWork::place_of(const FileWork& work, const BlockWindow& window) {
  const BlockDemand& d = work.demands[static_cast<size_t>(window.first)];
  const BoxRun run = d.runs.at(element_at(d, window.begin_bytes));
  // The window may begin inside an element.
  const int64_t skipped = window.begin_bytes - d.begin_bytes - run.src * d.element_bytes;
  touch(work, window.first);
  return {bytes_of_target(work, window.first) + run.dst * d.element_bytes + skipped,
          static_cast<size_t>(window.end_bytes - window.begin_bytes)};
}

void FillWork::check_place(const FileWork& work, const BlockWindow& window,
                           std::span<const std::byte> bytes) const {
  check_bytes(bytes, target_of(work, window.first).stored, target_of(work, window.first).name);
}

void FillWork::deliver(const FileWork& work, const ReadFile& file, const BlockWindow& window,
                       WindowBytes bytes, FillScratch& scratch) {
  for (int i = window.first; i < window.last; ++i) {
    const BlockDemand& d = work.demands[static_cast<size_t>(i)];
    if (d.direct) {
      copy(work, i, window, bytes);
      continue;
    }
    for_each_run(d, window,
                 [&](const BoxRun& run) { convert(work, file, i, run, window, bytes, scratch); });
  }
  compare_all(work, window, bytes);
}

// The bytes of a demand's runs that lie in the window; elements may lie across its edges.
void FillWork::copy(const FileWork& work, int demand, const BlockWindow& window,
                    WindowBytes& bytes) {
  const BlockDemand& d = work.demands[static_cast<size_t>(demand)];
  const FillTarget& target = target_of(work, demand);
  // A damaged block is not blamed on the byte of a bool.
  if (target.stored == DType::kBool) compare_all(work, window, bytes);
  std::byte* to = bytes_of_target(work, demand);
  bool touched = false;
  for_each_run(d, window, [&](const BoxRun& run) {
    const int64_t run_begin = d.begin_bytes + run.src * d.element_bytes;
    const int64_t begin = std::max(run_begin, window.begin_bytes);
    const int64_t end = std::min(run_begin + run.count * d.element_bytes, window.end_bytes);
    if (begin >= end) return;
    const auto from = bytes.take(begin - window.begin_bytes, end - begin);
    check_bytes(from, target.stored, target.name);
    if (!std::exchange(touched, true)) touch(work, demand);
    std::memcpy(to + run.dst * d.element_bytes + (begin - run_begin), from.data(), from.size());
  });
}

// Elements that lie across the window's edges are read once more, by the window that they end in.
void FillWork::convert(const FileWork& work, const ReadFile& file, int demand, const BoxRun& run,
                       const BlockWindow& window, WindowBytes& bytes, FillScratch& scratch) {
  const BlockDemand& d = work.demands[static_cast<size_t>(demand)];
  const FillTarget& target = target_of(work, demand);
  const DType into = target.local.dtype();
  const Tensor& from = scratch.elements(target.stored);
  touch(work, demand);
  for (int64_t done = 0; done < run.count;) {
    const int64_t begin = d.begin_bytes + (run.src + done) * d.element_bytes;
    int64_t count = std::min(kConvertedAtOnce, run.count - done);
    if (begin < window.begin_bytes) {
      count = 1;
      file.read(begin, {static_cast<std::byte*>(from.raw()), static_cast<size_t>(d.element_bytes)});
    } else {
      count = std::min(count, (window.end_bytes - begin) / d.element_bytes);
      if (count == 0) return;
      const auto stored = bytes.take(begin - window.begin_bytes, count * d.element_bytes);
      std::memcpy(from.raw(), stored.data(), stored.size());
    }
    // A Tensor of its own: other workers write to the same storage.
    std::byte* to = bytes_of_target(work, demand) + (run.dst + done) * size_of(into);
    kernels::cast(from.narrow(0, 0, count), Tensor::wrap(to, {count}, into, nullptr));
    done += count;
  }
}

// Strided tensors get their values, and every storage its new version: also that of a piece without
// elements, so that ranks agree on whether what was made of the tensor is still its value.
void FillWork::finish() {
  for (size_t i = 0; i < targets_.size(); ++i) {
    const Tensor& local = targets_[i].local;
    if (touched_[i] && !local.is_contiguous()) kernels::copy(contiguous_[i], local);
    local.storage()->bump_version();
  }
}

std::string FillWork::overwritten() const {
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

}  // namespace dtensor::checkpoint
