#include "dtensor/checkpoint/file_io.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

namespace dtensor::checkpoint {
namespace {

// Small appends are collected up to this size, so that thousands of small tensors are few writes.
constexpr size_t kBufferBytes = 1 << 20;

[[noreturn]] void fail(std::string_view what, const std::string& path, int error) {
  throw CheckpointError(
      fmt::format("cannot {} {}: {}", what, path, std::generic_category().message(error)));
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Unique among the processes and threads of this host; another host's is told apart by O_EXCL.
std::string temporary_beside(const std::string& path) {
  static std::atomic<uint64_t> count{0};
  return fmt::format("{}.tmp-{}-{}", path, getpid(), count.fetch_add(1));
}

}  // namespace

ReadFile::ReadFile(const std::string& path) : path_(path) {
  // A FIFO must not block the open; it is refused below.
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) fail("open", path, errno);
  struct stat info = {};
  if (fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    const int error = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
    close(std::exchange(fd_, -1));
    fail("read as a regular file", path, error);
  }
  size_bytes_ = info.st_size;
}

ReadFile::~ReadFile() {
  if (fd_ >= 0) close(fd_);
}

ReadFile::ReadFile(ReadFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_bytes_(other.size_bytes_) {}

ReadFile& ReadFile::operator=(ReadFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

void ReadFile::read(int64_t offset_bytes, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got = pread(fd_, into.data(), into.size(), offset_bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path_, errno);
    if (got == 0) {
      throw CheckpointError(
          fmt::format("{} ends at byte {}, {} more were expected: it had {} bytes when it was "
                      "opened and was cut short since",
                      path_, offset_bytes, into.size(), size_bytes_));
    }
    offset_bytes += got;
    into = into.subspan(static_cast<size_t>(got));
  }
}

std::string read_text(const std::string& path, int64_t limit_bytes) {
  const ReadFile file(path);
  if (file.size_bytes() > limit_bytes) {
    throw CheckpointError(
        fmt::format("{} has {} bytes, more than the {} that are read of such a file", path,
                    file.size_bytes(), limit_bytes));
  }
  std::string text(static_cast<size_t>(file.size_bytes()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

NewFile::NewFile(std::string path) : path_(std::move(path)) {
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("create", path_, errno);
}

NewFile::~NewFile() {
  if (fd_ >= 0) close(fd_);
  if (!kept_) unlink(path_.c_str());
}

void NewFile::append(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() >= kBufferBytes) {
    write_all(bytes);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void NewFile::flush() {
  write_all(buffer_);
  buffer_.clear();
}

void NewFile::write_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("write", path_, errno);
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
}

void NewFile::sync() {
  flush();
  if (fsync(fd_) != 0) fail("fsync", path_, errno);
  if (close(std::exchange(fd_, -1)) != 0) fail("close", path_, errno);
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_(temporary_beside(path_)) {}

void AtomicFile::commit(Existing existing) {
  const char* from = temporary_.path().c_str();
  const unsigned flags = existing == Existing::kRefuse ? RENAME_NOREPLACE : 0;
  int result = renameat2(AT_FDCWD, from, AT_FDCWD, path_.c_str(), flags);
  if (result != 0 && flags != 0 && (errno == EINVAL || errno == ENOSYS)) {
    // This file system has no such rename: look first. Ids are unique, so nobody races for it.
    if (access(path_.c_str(), F_OK) == 0) fail("replace", path_, EEXIST);
    result = rename(from, path_.c_str());
  }
  if (result != 0) fail("rename to", path_, errno);
  temporary_.keep();
  sync_directory(directory_of(path_));
}

void sync_directory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail("open", path, errno);
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  // Some network file systems have no fsync of directories and say EINVAL.
  if (error != 0 && error != EINVAL) fail("fsync", path, error);
}

}  // namespace dtensor::checkpoint
