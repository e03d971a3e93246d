// FileSystem: what writing asks of the operating system. A slot of the Context names the one in
// use, so that a test can put in its place one that is slow, full, or loses what was not synced.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "dtensor/base/language.h"

namespace dtensor::checkpoint {

enum class Existing : uint8_t { kReplace, kRefuse };

// Results are 0, or an errno. Thread-safe.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // A new, empty file; EEXIST where there is one.
  virtual int create(const std::string& path, int& fd) = 0;
  // Appends; `put` may be less than all.
  virtual int write(int fd, std::span<const std::byte> bytes, size_t& put) = 0;
  // The disk may begin with these bytes: a hint, and no promise.
  virtual void begin_sync(int /*fd*/, int64_t /*offset_bytes*/, int64_t /*size_bytes*/) {}
  // What was written is on the disk when this returns.
  virtual int sync(int fd) = 0;
  virtual int close(int fd) = 0;
  virtual int make_directory(const std::string& path) = 0;
  virtual int rename(const std::string& from, const std::string& to, Existing existing) = 0;
  virtual int remove(const std::string& path) = 0;  // a file, or an empty directory
  // The entries of a directory are on the disk when this returns.
  virtual int sync_directory(const std::string& path) = 0;
};

std::shared_ptr<FileSystem> posix_file_system();

// The Context's slot.
struct CurrentFileSystem {
  std::shared_ptr<FileSystem> system = posix_file_system();
};

// Makes a directory and those above it that are not there, durably. CheckpointError naming the one
// that could not be made.
void make_directories(FileSystem& system, const std::string& path);

// "/a/b" -> "/a", "b" -> "."
std::string directory_of(const std::string& path);

}  // namespace dtensor::checkpoint
