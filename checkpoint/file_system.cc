#include "dtensor/checkpoint/file_system.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <vector>

#include "dtensor/base/error.h"

namespace dtensor::checkpoint {
namespace {

int error_if(bool failed) { return failed ? errno : 0; }

class Posix : public FileSystem {
 public:
  int create(const std::string& path, int& fd) override {
    fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return error_if(fd < 0);
  }

  int write(int fd, std::span<const std::byte> bytes, size_t& put) override {
    ssize_t count = 0;
    do {
      count = ::write(fd, bytes.data(), bytes.size());
    } while (count < 0 && errno == EINTR);
    put = count < 0 ? 0 : static_cast<size_t>(count);
    return error_if(count < 0);
  }

  void begin_sync(int fd, int64_t offset_bytes, int64_t size_bytes) override {
    (void)sync_file_range(fd, offset_bytes, size_bytes, SYNC_FILE_RANGE_WRITE);
  }

  int sync(int fd) override { return error_if(::fsync(fd) != 0); }
  int close(int fd) override { return error_if(::close(fd) != 0); }

  int make_directory(const std::string& path) override {
    return error_if(::mkdir(path.c_str(), 0777) != 0);
  }

  int rename(const std::string& from, const std::string& to, Existing existing) override {
    const unsigned flags = existing == Existing::kRefuse ? RENAME_NOREPLACE : 0;
    int result = renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags);
    if (result != 0 && flags != 0 && (errno == EINVAL || errno == ENOSYS)) {
      // This file system has no such rename: look first. Ids are unique, so nobody races for it.
      if (access(to.c_str(), F_OK) == 0) return EEXIST;
      result = ::rename(from.c_str(), to.c_str());
    }
    return error_if(result != 0);
  }

  int remove(const std::string& path) override { return error_if(::remove(path.c_str()) != 0); }

  int sync_directory(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    const int error = error_if(::fsync(fd) != 0);
    ::close(fd);
    // Some network file systems have no fsync of directories and say EINVAL.
    return error == EINVAL ? 0 : error;
  }
};

}  // namespace

std::shared_ptr<FileSystem> posix_file_system() { return std::make_shared<Posix>(); }

std::string directory_of(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path.empty() ? "." : "/";
  const size_t slash = path.rfind('/', end);
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

void make_directories(FileSystem& system, const std::string& path) {
  std::vector<std::string> levels;  // the innermost first
  int error = ENOENT;
  for (std::string at = path; error == ENOENT; at = directory_of(at)) {
    if (!levels.empty() && levels.back() == at) break;
    levels.push_back(at);
    error = system.make_directory(at);
  }
  while (error == 0 || error == EEXIST) {
    if (error == 0) error = system.sync_directory(directory_of(levels.back()));
    if (levels.size() == 1 || (error != 0 && error != EEXIST)) break;
    levels.pop_back();
    error = system.make_directory(levels.back());
  }
  struct stat info = {};
  if (error == EEXIST && stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode)) error = ENOTDIR;
  if (error == 0 || error == EEXIST) return;
  throw CheckpointError(fmt::format("cannot make the directory {}: {}", levels.back(),
                                    std::generic_category().message(error)));
}

}  // namespace dtensor::checkpoint
