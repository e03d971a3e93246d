#include "dtensor/comm/shm/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "dtensor/base/error.h"

namespace dtensor::comm::shm {
namespace {

internal::Fd new_file(int64_t bytes) {
  internal::Fd fd(memfd_create("dtensor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
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

Arena::Arena(int64_t bytes)
    : fd_(new_file(whole_pages(bytes))),
      mapping_(fd_, whole_pages(bytes), Mapping::Access::kReadWrite) {
  free_[0] = mapping_.size_bytes();
}

void* Arena::allocate(int64_t bytes, Pages pages) {
  if (bytes < 0 || bytes > size_bytes()) return nullptr;
  const int64_t size = std::max(whole_pages(bytes), kPageBytes);
  int64_t offset = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto room =
        std::ranges::find_if(free_, [&](const auto& block) { return block.second >= size; });
    if (room == free_.end()) return nullptr;
    offset = room->first;
    const int64_t rest = room->second - size;
    free_.erase(room);
    if (rest > 0) free_[offset + size] = rest;
  }
  if (pages == Pages::kNow) {
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
  const int64_t size = std::max(whole_pages(bytes), kPageBytes);
  const int64_t offset = static_cast<std::byte*>(data) - base();
  // Where this fails the memory stays taken, and allocate would give old contents: then it is lost.
  if (fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, size) != 0) return;
  const std::lock_guard lock(mutex_);
  give_back(offset, size);
}

void Arena::give_back(int64_t offset, int64_t bytes) {
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

int64_t Arena::offset_of(const void* data, int64_t bytes) const {
  const int64_t offset = static_cast<const std::byte*>(data) - base();
  return offset >= 0 && offset <= size_bytes() && bytes <= size_bytes() - offset ? offset : -1;
}

}  // namespace dtensor::comm::shm
