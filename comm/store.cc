#include "dtensor/comm/store.h"

#include <fmt/format.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "dtensor/base/error.h"

namespace dtensor::comm {
namespace {

class MemoryStore : public Store {
 public:
  void set(std::string_view key, std::string_view value) override {
    check_store_entry(key, value);
    {
      const std::lock_guard lock(mutex_);
      const auto [it, added] = values_.try_emplace(std::string(key), value);
      if (!added && it->second != value) throw_differs("memory store", key);
    }
    changed_.notify_all();
  }

  std::string get(std::string_view key, Deadline deadline) override {
    const Deadline until = deadline.resolved();
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto it = values_.find(key);
      if (it != values_.end()) return it->second;
      if (until.expired()) throw_absent("memory store", key);
      changed_.wait_for(lock, until.left());
    }
  }

  bool has(std::string_view key) override {
    const std::lock_guard lock(mutex_);
    return values_.find(key) != values_.end();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;  // guarded by mutex_
};

}  // namespace

std::shared_ptr<Store> make_memory_store() { return std::make_shared<MemoryStore>(); }

void check_store_entry(std::string_view key, std::string_view value) {
  if (key.empty() || static_cast<int64_t>(key.size()) > kMaxKeyBytes ||
      key.find('\n') != std::string_view::npos) {
    throw ArgumentError(fmt::format("store: a key is one line of 1 to {} bytes, found {}",
                                    kMaxKeyBytes, key.size()));
  }
  if (static_cast<int64_t>(value.size()) > kMaxValueBytes) {
    throw ArgumentError(fmt::format("store: the value of \"{}\" has {} bytes, at most {} are taken",
                                    key, value.size(), kMaxValueBytes));
  }
}

void throw_absent(std::string_view store, std::string_view key) {
  throw Error(fmt::format("{}: nobody set the key \"{}\" by the deadline", store, key));
}

void throw_differs(std::string_view store, std::string_view key) {
  throw Error(fmt::format("{}: the key \"{}\" holds another value; a key is set once", store, key));
}

}  // namespace dtensor::comm
