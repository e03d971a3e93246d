#include "dtensor/checkpoint/file_io.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <system_error>
#include <utility>

#include "dtensor/base/context.h"

namespace dtensor::checkpoint {
namespace {

constexpr std::string_view kTemporary = ".tmp-";
constexpr int64_t kSyncStepBytes = 8 << 20;
constexpr int64_t kPageBytes = 4096;
constexpr size_t kLargeBytes = 256 << 10;  // a piece that is worth a write of its own

[[noreturn]] void fail(std::string_view what, const std::string& path, int error) {
  throw CheckpointError(
      fmt::format("cannot {} {}: {}", what, path, std::generic_category().message(error)));
}

[[noreturn]] void fail_reading(std::string_view what, const std::string& path, int error) {
  if (!is_unreadable(error)) fail(what, path, error);
  throw UnreadableError(
      fmt::format("cannot {} {}: {}", what, path, std::generic_category().message(error)));
}

// The process's number is for people: hosts and containers have the same ones, and one that was
// killed leaves its file. The random bits tell them apart.
std::string temporary_beside(const std::string& path) {
  std::random_device random;
  return fmt::format("{}{}{}-{:08x}{:08x}", path, kTemporary, getpid(), random(), random());
}

// Are they there, and all of `alphabet`?
bool is_made_of(std::string_view digits, std::string_view alphabet) {
  return !digits.empty() && digits.find_first_not_of(alphabet) == std::string_view::npos;
}

}  // namespace

std::shared_ptr<FileSystem> current_file_system() {
  return Context::current().slot<CurrentFileSystem>().system;
}

bool is_unreadable(int error) {
  static constexpr std::array kKnown = {ENOENT, ENOTDIR, EISDIR, EINVAL,
                                        ENXIO,  ELOOP,   ENODEV, ENAMETOOLONG};
  return std::ranges::find(kKnown, error) == kKnown.end();
}

ReadFile::ReadFile(const std::string& path) : path_(path) {
  // A FIFO must not block the open; it is refused below.
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) fail_reading("open", path, errno);
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
    if (got < 0) fail_reading("read", path_, errno);
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

NewFile::NewFile(std::string path, std::shared_ptr<FileSystem> system)
    : path_(std::move(path)), system_(std::move(system)) {
  if (const int error = system_->create(path_, fd_)) {
    fd_ = -1;
    kept_ = true;  // nothing of ours is there
    fail("create", path_, error);
  }
}

NewFile::~NewFile() {
  if (fd_ >= 0) system_->close(fd_);
  if (!kept_) system_->remove(path_);
}

void NewFile::append(std::span<const std::byte> bytes) {
  constexpr auto kBlock = static_cast<size_t>(kBlockBytes);
  const bool is_large = bytes.size() >= kLargeBytes;
  if (is_large) flush();
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kBlock - buffer_.size()));
    bytes = bytes.subspan(piece.size());
    if (is_large) {
      write_all(piece);
      continue;
    }
    buffer_.insert(buffer_.end(), piece.begin(), piece.end());
    if (buffer_.size() == kBlock) flush();
  }
}

void NewFile::flush() {
  write_all(buffer_);
  buffer_.clear();
}

// The CRC is taken while the block is in the processor's cache for the write anyway.
void NewFile::write_all(std::span<const std::byte> bytes) {
  crcs_.update(bytes);
  while (!bytes.empty()) {
    size_t put = 0;
    if (const int error = system_->write(fd_, bytes, put)) fail("write", path_, error);
    bytes = bytes.subspan(put);
  }
  // The disk works while the next blocks are gathered, and not only from the fsync on.
  // Whole pages only: the last one is written to once more.
  const int64_t end = crcs_.bytes() / kPageBytes * kPageBytes;
  if (end - sync_begun_ < kSyncStepBytes) return;
  system_->begin_sync(fd_, sync_begun_, end - sync_begun_);
  sync_begun_ = end;
}

void NewFile::sync() {
  flush();
  if (const int error = system_->sync(fd_)) fail("fsync", path_, error);
  if (const int error = system_->close(std::exchange(fd_, -1))) fail("close", path_, error);
}

AtomicFile::AtomicFile(std::string path, std::shared_ptr<FileSystem> system)
    : path_(std::move(path)),
      system_(std::move(system)),
      temporary_(temporary_beside(path_), system_) {}

void AtomicFile::rename(Existing existing) {
  if (const int error = system_->rename(temporary_.path(), path_, existing)) {
    fail("rename to", path_, error);
  }
  temporary_.keep();
}

void AtomicFile::commit(Existing existing) {
  rename(existing);
  sync_directory(*system_, directory_of(path_));
}

bool is_temporary_name(std::string_view name) {
  const size_t at = name.rfind(kTemporary);
  if (at == std::string_view::npos || at == 0) return false;
  const std::string_view numbers = name.substr(at + kTemporary.size());
  const size_t dash = numbers.find('-');
  return dash != std::string_view::npos && is_made_of(numbers.substr(0, dash), "0123456789") &&
         is_made_of(numbers.substr(dash + 1), "0123456789abcdef");
}

void sync_directory(FileSystem& system, const std::string& path) {
  if (const int error = system.sync_directory(path)) fail("fsync", path, error);
}

}  // namespace dtensor::checkpoint
