// A disk as a crash leaves it. What was asked of a file system is recorded once; a crash after the
// n-th call is then played: the calls up to it are made again in a new directory, in which a file
// has at least what was synced of it, and a name is there or not, unless its directory was synced.

#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/checkpoint/file_system.h"
#include "dtensor/tests/checkpoint/recording_file_system.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor::testing {

inline constexpr size_t kPage = 4096;

// What the disk does with names (directory entries) that were not synced, and with data.
enum class Names { kAllKept, kNoneKept };
enum class Data { kLost, kCut, kZeros };

struct Crash {
  size_t after = 0;  // so many calls
  Names names = Names::kAllKept;
  Data data = Data::kLost;
  size_t kept_pages = 0;  // of what was not synced of each file
};

// The files of a directory as a crash leaves them.
class CrashedDisk {
 public:
  CrashedDisk(const std::vector<FileCall>& calls, const Crash& crash) : crash_(crash) {
    for (size_t i = 0; i < crash.after; ++i) play(calls[i]);
  }

  // The most bytes of a file that were not synced.
  size_t unsynced_bytes() const {
    size_t most = 0;
    for (const auto& [name, file] : names_) {
      if (file.contents) {
        most = std::max(most, file.contents->bytes.size() - file.contents->synced);
      }
    }
    return most;
  }

  // Equal for two crashes that leave the same.
  std::string left() const {
    std::string all;
    for (const auto& [name, entry] : survivors()) {
      all += name + "\n" + (entry.contents ? entry.contents->after(crash_) : "/") + "\n";
    }
    return all;
  }

  // Makes it under `to` what it was under `from`.
  void restore(const std::string& from, const std::string& to) const {
    for (const auto& [name, entry] : survivors()) {
      const std::string path = to + name.substr(from.size());
      if (!entry.contents) {
        std::filesystem::create_directories(path);
      } else if (std::filesystem::exists(std::filesystem::path(path).parent_path())) {
        write_file(path, entry.contents->after(crash_));
      }
    }
  }

 private:
  struct Contents {
    std::string bytes;
    size_t synced = 0;

    std::string after(const Crash& crash) const {
      const size_t kept = std::min(bytes.size(), synced + crash.kept_pages * kPage);
      if (crash.data == Data::kLost) return bytes.substr(0, synced);
      if (crash.data == Data::kCut) return bytes.substr(0, kept);
      return bytes.substr(0, kept) + std::string(bytes.size() - kept, '\0');
    }
  };
  struct Entry {
    std::shared_ptr<Contents> contents;  // null: a directory
  };
  using Table = std::map<std::string, Entry>;

  static std::string parent(const std::string& path) { return checkpoint::directory_of(path); }

  void play(const FileCall& c) {
    switch (c.kind) {
      case FileCall::Kind::kCreate:
        names_[c.path] = {std::make_shared<Contents>()};
        break;
      case FileCall::Kind::kWrite:
        names_.at(c.path).contents->bytes += c.bytes;
        break;
      case FileCall::Kind::kSync:
        names_.at(c.path).contents->synced = names_.at(c.path).contents->bytes.size();
        break;
      case FileCall::Kind::kClose:
        break;
      case FileCall::Kind::kMakeDirectory:
        names_[c.path] = {};
        break;
      case FileCall::Kind::kRename:
        rename(c.path, c.to);
        break;
      case FileCall::Kind::kRemove:
        names_.erase(c.path);
        break;
      case FileCall::Kind::kSyncDirectory:
        sync_directory(c.path);
        break;
    }
  }

  void rename(const std::string& from, const std::string& to) {
    Table moved;
    for (auto it = names_.begin(); it != names_.end();) {
      const bool is_it = it->first == from || it->first.starts_with(from + "/");
      if (is_it) moved[to + it->first.substr(from.size())] = it->second;
      it = is_it ? names_.erase(it) : std::next(it);
    }
    names_.merge(moved);
  }

  void sync_directory(const std::string& path) {
    std::erase_if(durable_, [&](const auto& item) { return parent(item.first) == path; });
    for (const auto& [name, entry] : names_) {
      if (parent(name) == path) durable_[name] = entry;
    }
  }

  Table survivors() const { return crash_.names == Names::kAllKept ? names_ : durable_; }

  Crash crash_;
  Table names_;    // as programs see them
  Table durable_;  // as of the last sync of their directories
};

}  // namespace dtensor::testing
