// What a process that was forked has to know: it has copies of all objects, and none of what these
// stand for. Threads, connections and shared memory are still those of the process that forked.

#pragma once

#include <cstdint>
#include <memory>

#include "dtensor/base/language.h"

namespace dtensor::internal {

// As getpid(), without a system call.
int64_t process_id();

// Never destroys it. For what would end, or wait for, something of another process. Thread-safe.
void keep_forever(std::shared_ptr<void> object);

}  // namespace dtensor::internal
