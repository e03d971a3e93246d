// File systems for tests: one that writes down what was asked of it, so that what a crash would
// have left can be made again; and one that stops, fails or waits at the call of the test's choice.

#pragma once

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/checkpoint/file_system.h"

namespace dtensor::testing {

struct FileCall {
  enum class Kind {
    kCreate,
    kWrite,
    kSync,
    kClose,
    kMakeDirectory,
    kRename,
    kRemove,
    kSyncDirectory
  };
  Kind kind = Kind::kCreate;
  std::string path;   // of kWrite and kSync too
  std::string to;     // of kRename
  std::string bytes;  // of kWrite
};

// Passes everything on to the disk. `before` is asked first: what it returns but 0 is the call's
// error, and nothing is done.
class RecordingFileSystem : public checkpoint::FileSystem {
 public:
  using Before = std::function<int(const FileCall&)>;
  explicit RecordingFileSystem(Before before = nullptr) : before_(std::move(before)) {}

  std::vector<FileCall> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

  int create(const std::string& path, int& fd) override {
    fd = -1;
    return run({FileCall::Kind::kCreate, path, "", ""}, [&] {
      const int error = disk_->create(path, fd);
      const std::lock_guard lock(mutex_);
      if (error == 0) paths_[fd] = path;
      return error;
    });
  }
  int write(int fd, std::span<const std::byte> bytes, size_t& put) override {
    put = 0;
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return run({FileCall::Kind::kWrite, path_of(fd), "", text},
               [&] { return disk_->write(fd, bytes, put); });
  }
  int sync(int fd) override {
    return run({FileCall::Kind::kSync, path_of(fd), "", ""}, [&] { return disk_->sync(fd); });
  }
  int close(int fd) override {
    return run({FileCall::Kind::kClose, path_of(fd), "", ""}, [&] { return disk_->close(fd); });
  }
  int make_directory(const std::string& path) override {
    return run({FileCall::Kind::kMakeDirectory, path, "", ""},
               [&] { return disk_->make_directory(path); });
  }
  int rename(const std::string& from, const std::string& to,
             checkpoint::Existing existing) override {
    return run({FileCall::Kind::kRename, from, to, ""},
               [&] { return disk_->rename(from, to, existing); });
  }
  int remove(const std::string& path) override {
    return run({FileCall::Kind::kRemove, path, "", ""}, [&] { return disk_->remove(path); });
  }
  int sync_directory(const std::string& path) override {
    return run({FileCall::Kind::kSyncDirectory, path, "", ""},
               [&] { return disk_->sync_directory(path); });
  }

 private:
  std::string path_of(int fd) const {
    const std::lock_guard lock(mutex_);
    const auto it = paths_.find(fd);
    return it == paths_.end() ? "" : it->second;
  }

  template <class F>
  int run(FileCall call, const F& f) {
    if (before_) {
      if (const int error = before_(call)) return error;
    }
    const int error = f();
    const std::lock_guard lock(mutex_);
    if (error == 0) calls_.push_back(std::move(call));
    return error;
  }

  std::shared_ptr<checkpoint::FileSystem> disk_ = checkpoint::posix_file_system();
  Before before_;
  mutable std::mutex mutex_;
  std::vector<FileCall> calls_;       // that succeeded; guarded by mutex_
  std::map<int, std::string> paths_;  // guarded by mutex_
};

// A file system that holds every write until open() is called.
class Gate {
 public:
  int wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
    return 0;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;  // guarded by mutex_
};

}  // namespace dtensor::testing
