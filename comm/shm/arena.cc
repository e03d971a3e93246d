#include "dtensor/comm/shm/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "dtensor/base/error.h"

namespace dtensor::comm::shm {
namespace {

// As Linux has them; older headers do not.
constexpr unsigned kNoExecSeal = 0x8;

internal::Fd new_file(int64_t bytes) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  // Never a program. Linux knows that since 6.3, and may be set to refuse any other.
  internal::Fd fd(memfd_create("dtensor", kFlags | kNoExecSeal));
  if (!fd && errno == EINVAL) fd = internal::Fd(memfd_create("dtensor", kFlags));
  if (!fd) throw Error(fmt::format("memfd_create: {}", std::strerror(errno)));
  if (ftruncate(fd.get(), bytes) != 0) {
    throw Error(fmt::format("shared memory of {} bytes: {}", bytes, std::strerror(errno)));
  }
  // A file that shrinks under a mapping ends the process that reads it.
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw Error(fmt::format("shared memory cannot be sealed: {}", std::strerror(errno)));
  }
  return fd;
}

}  // namespace

Mapping::Mapping(const internal::Fd& fd, int64_t bytes, Access access) : bytes_(bytes) {
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  void* data = mmap(nullptr, static_cast<size_t>(bytes), protection, MAP_SHARED | MAP_NORESERVE,
                    fd.get(), 0);
  if (data == MAP_FAILED) {
    throw Error(
        fmt::format("shared memory of {} bytes cannot be mapped: {}", bytes, std::strerror(errno)));
  }
  data_ = static_cast<std::byte*>(data);
  madvise(data, static_cast<size_t>(bytes), MADV_DONTDUMP);
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping map_given(const internal::Fd& fd, int64_t bytes) {
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  struct stat info = {};
  if (seals < 0 || fstat(fd.get(), &info) != 0) {
    throw Error("shared memory: what a rank of this host gave is no memory");
  }
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  if ((seals & kSeals) != kSeals || info.st_size != bytes) {
    throw Error(fmt::format(
        "shared memory: a rank of this host gave {} bytes of memory that is {}; {} bytes that are "
        "sealed are due",
        info.st_size, (seals & kSeals) == kSeals ? "sealed" : "not sealed", bytes));
  }
  return {fd, bytes, Mapping::Access::kRead};
}

Arena::Arena(int64_t users_bytes, int64_t own_bytes)
    : fd_(new_file(whole_pages(users_bytes) + whole_pages(own_bytes))),
      own_bytes_(whole_pages(own_bytes)),
      mapping_(fd_, whole_pages(users_bytes) + own_bytes_, Mapping::Access::kReadWrite) {
  if (own_bytes_ > 0) free_of(For::kOwn)[0] = own_bytes_;
  if (size_bytes() > own_bytes_) free_of(For::kUsers)[own_bytes_] = size_bytes() - own_bytes_;
}

void* Arena::allocate(int64_t bytes, For purpose) {
  if (bytes < 0 || bytes > size_bytes() || !is_of_this_process()) return nullptr;
  const int64_t size = std::max(whole_pages(bytes), kPageBytes);
  int64_t offset = 0;
  {
    const std::lock_guard lock(mutex_);
    Free& free = free_of(purpose);
    const auto room =
        std::ranges::find_if(free, [&](const auto& block) { return block.second >= size; });
    if (room == free.end()) return nullptr;
    offset = room->first;
    const int64_t rest = room->second - size;
    free.erase(room);
    if (rest > 0) free[offset + size] = rest;
  }
  if (purpose == For::kUsers) {
    int status = 0;
    do {
      status = fallocate(fd_.get(), 0, offset, size);
    } while (status != 0 && errno == EINTR);
    if (status != 0) {
      deallocate(base() + offset, bytes);
      return nullptr;
    }
  }
  return base() + offset;
}

void Arena::deallocate(void* data, int64_t bytes) noexcept {
  if (!is_of_this_process()) return;  // a hole would be one in the tensors of who made it
  const int64_t size = std::max(whole_pages(bytes), kPageBytes);
  const int64_t offset = static_cast<std::byte*>(data) - base();
  // Where this fails the memory stays taken, and allocate would give old contents: then it is lost.
  if (fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, size) != 0) return;
  const std::lock_guard lock(mutex_);
  give_back(free_of(offset < own_bytes_ ? For::kOwn : For::kUsers), offset, size);
}

void Arena::give_back(Free& to, int64_t offset, int64_t bytes) {
  auto next = to.lower_bound(offset);
  if (next != to.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = to.erase(next);
  }
  if (next != to.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  to[offset] = bytes;
}

int64_t Arena::offset_of(const void* data, int64_t bytes) const {
  const int64_t offset = static_cast<const std::byte*>(data) - base();
  return offset >= 0 && offset <= size_bytes() && bytes <= size_bytes() - offset ? offset : -1;
}

}  // namespace dtensor::comm::shm
