#include "dtensor/base/file_allocator.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <system_error>

#include "dtensor/base/error.h"
#include "dtensor/base/process.h"

namespace dtensor {
namespace {

int64_t page_bytes() {
  static const int64_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

// At least one page: every block has an address of its own.
int64_t whole_pages(int64_t bytes) {
  const int64_t page = page_bytes();
  return std::max<int64_t>(1, (bytes + page - 1) / page) * page;
}

std::string reason(int error) { return std::generic_category().message(error); }

}  // namespace

FileAllocator::FileAllocator(const std::string& directory)
    : process_(internal::process_id()), directory_(directory) {
  std::string path = directory + "/dtensor-slow-tier-XXXXXX";
  file_ = mkostemp(path.data(), O_CLOEXEC);
  if (file_ < 0) {
    throw Error("FileAllocator: no file in \"" + directory + "\": " + reason(errno) +
                "; name a directory on a file system with room");
  }
  unlink(path.c_str());
}

FileAllocator::~FileAllocator() {
  for (const auto& [data, block] : blocks_) {
    munmap(const_cast<char*>(data), static_cast<size_t>(block.mapped));
  }
  close(file_);
}

int64_t FileAllocator::take_range(int64_t bytes) {
  if (const auto it = free_.find(bytes); it != free_.end()) {
    const int64_t offset = it->second;
    free_.erase(it);
    return offset;
  }
  // Space is taken now: a page that found none when it is written would be a signal.
  const int error = posix_fallocate(file_, end_, bytes);
  if (error != 0) {
    throw Error("FileAllocator: " + std::to_string(bytes) + " bytes more in \"" + directory_ +
                "\", which has " + std::to_string(end_) + " bytes of ours: " + reason(error));
  }
  const int64_t offset = end_;
  end_ += bytes;
  return offset;
}

void* FileAllocator::allocate(int64_t bytes) {
  if (bytes < 0) throw ArgumentError("FileAllocator: " + std::to_string(bytes) + " bytes");
  // Each would give the same ranges of the one file, to other tensors.
  if (internal::process_id() != process_) {
    throw Error("FileAllocator: this process was forked from the one whose file in \"" +
                directory_ + "\" this is; make another FileAllocator here");
  }
  const int64_t mapped = whole_pages(bytes);
  const std::lock_guard lock(mutex_);
  const int64_t offset = take_range(mapped);
  void* data =
      mmap(nullptr, static_cast<size_t>(mapped), PROT_READ | PROT_WRITE, MAP_SHARED, file_, offset);
  if (data == MAP_FAILED) {
    const int error = errno;
    free_.emplace(mapped, offset);
    throw Error("FileAllocator: mapping " + std::to_string(mapped) + " bytes: " + reason(error));
  }
  blocks_.emplace(static_cast<const char*>(data), Block{offset, mapped});
  stats_.live_bytes += bytes;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  ++stats_.allocations;
  return data;
}

void FileAllocator::deallocate(void* data, int64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const auto it = blocks_.find(static_cast<const char*>(data));
  if (it == blocks_.end()) return;
  const Block block = it->second;
  munmap(data, static_cast<size_t>(block.mapped));
  blocks_.erase(it);
  stats_.live_bytes -= bytes;
  try {
    free_.emplace(block.mapped, block.offset);
  } catch (const std::bad_alloc&) {
    // The range stays unused.
  }
}

AllocatorStats FileAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  AllocatorStats stats = stats_;
  stats.held_bytes = stats.live_bytes;
  return stats;
}

void FileAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_bytes = stats_.live_bytes;
}

std::map<const char*, FileAllocator::Block>::const_iterator FileAllocator::block_of(
    const void* data) const {
  const auto* address = static_cast<const char*>(data);
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return blocks_.end();
  const auto it = std::prev(after);
  return address < it->first + it->second.mapped ? it : blocks_.end();
}

void FileAllocator::will_need(const void* data) const {
  const std::lock_guard lock(mutex_);
  const auto it = block_of(data);
  if (it == blocks_.end()) return;
  madvise(const_cast<char*>(it->first), static_cast<size_t>(it->second.mapped), MADV_WILLNEED);
}

// Of a shared mapping of a file MADV_DONTNEED drops page table entries; what was written is in the
// page cache.
void FileAllocator::let_go(const void* data) const {
  const std::lock_guard lock(mutex_);
  const auto it = block_of(data);
  if (it == blocks_.end()) return;
  madvise(const_cast<char*>(it->first), static_cast<size_t>(it->second.mapped), MADV_DONTNEED);
}

}  // namespace dtensor
