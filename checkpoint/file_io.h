// Files read by offset and files written so that a crash leaves the old one. Internal.
// Every failure is a CheckpointError that names the file and the system's reason.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/file_system.h"

namespace dtensor::checkpoint {

// That of the Context that is bound now.
std::shared_ptr<FileSystem> current_file_system();

// A file that is there, or may be, and that the system does not give: no permission, too many open
// files, a failing disk or network. What is in it is not known.
class UnreadableError : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

// Does the system's `error` say that nothing is known of a file? Not of one that is not there, or
// is no regular file, or whose name cannot be one.
bool is_unreadable(int error);

// An open file. Read with pread, never mapped: a file that shrinks meanwhile is an error, not a
// signal. Thread-safe. Links are followed; anything but a regular file is refused.
class ReadFile {
 public:
  explicit ReadFile(const std::string& path);
  ~ReadFile();
  ReadFile(ReadFile&& other) noexcept;
  ReadFile& operator=(ReadFile&& other) noexcept;

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }  // when it was opened
  void read(int64_t offset_bytes, std::span<std::byte> into) const;

 private:
  std::string path_;
  int fd_ = -1;
  int64_t size_bytes_ = 0;
};

// The whole of a file that has at most `limit_bytes`, which is checked before memory is taken.
std::string read_text(const std::string& path, int64_t limit_bytes);

// A file that was not there before, written from start to end: small pieces are gathered into
// writes of 1 MiB, large ones are written from where they are. Removed by the destructor unless
// keep() was reached.
class NewFile {
 public:
  explicit NewFile(std::string path, std::shared_ptr<FileSystem> system = current_file_system());
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  const std::string& path() const { return path_; }
  void append(std::span<const std::byte> bytes);
  // Everything appended is on the disk when this returns. Last call but keep() and crcs().
  void sync();
  void keep() noexcept { kept_ = true; }
  // Of the blocks, after sync().
  const BlockCrcs& crcs() const { return crcs_; }

 private:
  void flush();
  void write_all(std::span<const std::byte> bytes);

  std::string path_;
  std::shared_ptr<FileSystem> system_;
  int fd_ = -1;
  bool kept_ = false;
  std::vector<std::byte> buffer_;  // pieces that are not written yet
  BlockCrcs crcs_;
  int64_t sync_begun_ = 0;  // up to here
};

// A file written under a temporary name beside `path`. No temporary is left unless the process is
// killed.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path, std::shared_ptr<FileSystem> system = current_file_system());

  void append(std::span<const std::byte> bytes) { temporary_.append(bytes); }
  // fsync. What can fail for want of space has then succeeded. Last call but commit().
  void prepare() { temporary_.sync(); }
  // rename to `path`. After prepare(). It lasts once the directory is synced.
  void rename(Existing existing);
  // rename, and fsync of the directory.
  void commit(Existing existing);

 private:
  std::string path_;
  std::shared_ptr<FileSystem> system_;
  NewFile temporary_;
};

// Is `name` that of an AtomicFile's temporary: <name>.tmp-<digits>-<hexadecimal digits>?
bool is_temporary_name(std::string_view name);

// Makes the entries of a directory durable.
void sync_directory(FileSystem& system, const std::string& path);

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace dtensor::checkpoint
