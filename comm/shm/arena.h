// Arena: memory of one rank that the other processes of its host map. It is an anonymous file
// (memfd) without a name anywhere: the kernel frees it with the last process that has it, however
// these end. It is large and sparse: only pages that are used cost memory.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "dtensor/base/process.h"
#include "dtensor/comm/socket.h"

namespace dtensor::comm::shm {

inline constexpr int64_t kPageBytes = 4096;
inline int64_t whole_pages(int64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// A mapping of a file; `fd` is kept where it is to be passed on. Unmapped when it goes.
class Mapping {
 public:
  enum class Access : uint8_t { kRead, kReadWrite };
  Mapping() = default;
  // Error where the system refuses.
  Mapping(const internal::Fd& fd, int64_t bytes, Access access);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  int64_t size_bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Maps what another process gave as its arena, to be read. Error where it is no memory file of
// `bytes` bytes that can neither shrink nor grow: reading beyond its end would end this process.
Mapping map_given(const internal::Fd& fd, int64_t bytes);

// Thread-safe. Lives at least as long as the memory taken from it. A process that was forked from
// the one that made it has the same memory and its own account of it: it takes and gives back
// nothing.
class Arena {
 public:
  // Neither has what the other does not use.
  enum class For : uint8_t {
    kUsers,  // taken from the system at once: memory that is out shows here, not on first use
    kOwn,    // sparse
  };

  // The most that can be taken for each. Error where the system refuses.
  Arena(int64_t users_bytes, int64_t own_bytes);

  const internal::Fd& fd() const { return fd_; }
  std::byte* base() const { return mapping_.data(); }
  int64_t size_bytes() const { return mapping_.size_bytes(); }

  // Whole pages, all bits zero; nullptr where there is no room, memory is out, or another process
  // made it.
  void* allocate(int64_t bytes, For purpose);
  // The pages go back to the system, unless another process made it.
  void deallocate(void* data, int64_t bytes) noexcept;
  // Where [data, data + bytes) lies in it, -1 where it does not.
  int64_t offset_of(const void* data, int64_t bytes) const;

 private:
  using Free = std::map<int64_t, int64_t>;                         // offset to bytes
  static void give_back(Free& to, int64_t offset, int64_t bytes);  // joined with its neighbours
  Free& free_of(For purpose) { return free_[static_cast<size_t>(purpose)]; }

  bool is_of_this_process() const { return process_ == dtensor::internal::process_id(); }

  const int64_t process_ = dtensor::internal::process_id();
  internal::Fd fd_;
  const int64_t own_bytes_;  // from the beginning; the rest is for users
  Mapping mapping_;
  std::mutex mutex_;
  std::array<Free, 2> free_;  // guarded by mutex_
};

}  // namespace dtensor::comm::shm
