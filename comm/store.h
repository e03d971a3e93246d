// Store: keys and values by which ranks find each other, before there is a Comm. A key is set once
// and never removed. Keys are at most 1 KiB, values 1 MiB. Thread-safe.
// Bodies: memory (here), files (dtensor/comm/file_store.h), TCP (dtensor/comm/tcp_store.h).

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "dtensor/base/deadline.h"

namespace dtensor::comm {

inline constexpr int64_t kMaxKeyBytes = 1 << 10;
inline constexpr int64_t kMaxValueBytes = 1 << 20;

class Store {
 public:
  virtual ~Store() = default;
  // Sets a key once; Error where it holds another value. Setting the same value again is no error.
  virtual void set(std::string_view key, std::string_view value) = 0;
  // Waits for the key; Error naming it when the deadline passes.
  virtual std::string get(std::string_view key, Deadline deadline) = 0;
  virtual bool has(std::string_view key) = 0;
};

// For threads of one process.
std::shared_ptr<Store> make_memory_store();

// ArgumentError for a key or a value that no store takes.
void check_store_entry(std::string_view key, std::string_view value);

// The errors that all bodies throw.
[[noreturn]] void throw_absent(std::string_view store, std::string_view key);
[[noreturn]] void throw_differs(std::string_view store, std::string_view key);

}  // namespace dtensor::comm
