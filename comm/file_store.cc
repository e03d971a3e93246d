#include "dtensor/comm/file_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include "dtensor/base/error.h"

namespace dtensor::comm {
namespace {

// FNV-1a, 64 bit.
uint64_t hash(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325U;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return h;
}

class FileStore : public Store {
 public:
  explicit FileStore(std::string directory) : directory_(std::move(directory)) {
    std::error_code ec;
    std::filesystem::create_directories(directory_, ec);
    if (ec || access(directory_.c_str(), W_OK) != 0) {
      throw Error(
          fmt::format("{}: cannot write there: {}", name(), ec ? ec.message() : strerror(errno)));
    }
  }

  void set(std::string_view key, std::string_view value) override {
    check_store_entry(key, value);
    static std::atomic<int64_t> counter{0};
    const std::string temporary = fmt::format("{}/tmp.{}.{}", directory_, getpid(), ++counter);
    write_file(temporary, fmt::format("{}\n{}", key, value));
    // link() makes the name appear at once with its content, and fails where it is taken; rename()
    // would replace what another rank set.
    const int rc = link(temporary.c_str(), path(key).c_str());
    const int error = errno;
    unlink(temporary.c_str());
    if (rc == 0) return;
    if (error != EEXIST) {
      throw Error(fmt::format("{}: link for key \"{}\": {}", name(), key, strerror(error)));
    }
    if (read(key) != value) throw_differs(name(), key);
  }

  std::string get(std::string_view key, Deadline deadline) override {
    const Deadline until = deadline.resolved();
    auto pause = std::chrono::milliseconds(1);
    for (;;) {
      if (auto value = read(key)) return *value;
      if (until.expired()) throw_absent(name(), key);
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, until.left()));
      pause = std::min(pause * 2, std::chrono::milliseconds(20));
    }
  }

  bool has(std::string_view key) override { return read(key).has_value(); }

 private:
  std::string name() const { return fmt::format("file store {}", directory_); }
  std::string path(std::string_view key) const {
    return fmt::format("{}/{:016x}", directory_, hash(key));
  }

  void write_file(const std::string& file, std::string_view content) const {
    const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool good = fd >= 0;
    while (good && !content.empty()) {
      const ssize_t n = ::write(fd, content.data(), content.size());
      good = n > 0 || (n < 0 && errno == EINTR);
      if (n > 0) content.remove_prefix(static_cast<size_t>(n));
    }
    const int error = errno;
    if (fd >= 0) close(fd);
    if (!good) {
      unlink(file.c_str());
      throw Error(fmt::format("{}: cannot write {}: {}", name(), file, strerror(error)));
    }
  }

  std::optional<std::string> read(std::string_view key) const {
    const int fd = open(path(key).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      if (errno == ENOENT) return std::nullopt;
      throw Error(fmt::format("{}: key \"{}\": {}", name(), key, strerror(errno)));
    }
    std::string content;
    char block[4096];
    ssize_t n = 0;
    while ((n = ::read(fd, block, sizeof(block))) > 0 &&
           static_cast<int64_t>(content.size()) <= kMaxKeyBytes + kMaxValueBytes) {
      content.append(block, static_cast<size_t>(n));
    }
    close(fd);
    const size_t end = content.find('\n');
    if (n != 0 || end == std::string::npos || std::string_view(content).substr(0, end) != key) {
      throw Error(
          fmt::format("{}: the file of key \"{}\" is not ours: {}", name(), key, path(key)));
    }
    return content.substr(end + 1);
  }

  const std::string directory_;
};

}  // namespace

std::shared_ptr<Store> make_file_store(const std::string& directory) {
  return std::make_shared<FileStore>(directory);
}

}  // namespace dtensor::comm
