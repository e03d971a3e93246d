// FileAllocator: memory in a file: a slow tier that may be larger than the machine's memory. A
// block is a range of the file, mapped; the kernel reads its pages when they are touched and writes
// them back when it wants the memory for something else. The file is scratch: it has no name any
// more once it is open, and its space goes with the allocator. A process that is forked shares the
// blocks that are there, and gets no others: it makes an allocator of its own.

#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "dtensor/base/allocator.h"

namespace dtensor {

class FileAllocator : public Allocator {
 public:
  // A file of its own in `directory`. Error that names the directory and the system's reason.
  explicit FileAllocator(const std::string& directory);
  ~FileAllocator() override;
  FileAllocator(const FileAllocator&) = delete;
  FileAllocator& operator=(const FileAllocator&) = delete;

  // Error naming the bytes where the file system is full, or the address space; Error in a process
  // that was forked from the one that made it.
  void* allocate(int64_t bytes) override;
  void deallocate(void* data, int64_t bytes) noexcept override;
  AllocatorStats stats() const override;
  void reset_peak() override;

  // Hints for the block that holds this address; for other memory they do nothing. will_need: the
  // kernel starts to read it. let_go: this process does not hold its pages any more; the values
  // stay.
  void will_need(const void* data) const;
  void let_go(const void* data) const;

 private:
  struct Block {
    int64_t offset = 0;  // in the file
    int64_t mapped = 0;  // bytes, whole pages
  };
  // The block that holds this address; end() where it is other memory.
  std::map<const char*, Block>::const_iterator block_of(const void* data) const;
  int64_t take_range(int64_t bytes);  // its offset

  const int64_t process_;  // that made it
  std::string directory_;
  int file_ = -1;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<const char*, Block> blocks_;
  std::multimap<int64_t, int64_t> free_;  // ranges that were given back: bytes -> offset
  int64_t end_ = 0;
  AllocatorStats stats_;
};

}  // namespace dtensor
