#include "dtensor/base/process.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace dtensor::internal {
namespace {

// Looked up once, and again in a process that is forked.
std::atomic<int64_t> id{0};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

}  // namespace

int64_t process_id() {
  static const bool follows = [] {
    id = getpid();
    return pthread_atfork(nullptr, nullptr, [] { id = getpid(); }) == 0;
  }();
  return follows ? id.load(std::memory_order_relaxed) : getpid();
}

void keep_forever(std::shared_ptr<void> object) {
  static auto& mutex = *new std::mutex;
  static auto& kept = *new std::vector<std::shared_ptr<void>>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(object));
}

}  // namespace dtensor::internal
