// Standing: where one rank is on one Comm, and whether that Comm has ended. Watch: the thread of a
// rank that looks after its Standings, so that a rank that waits for data need not look itself.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/comm/call.h"
#include "dtensor/comm/control.h"
#include "dtensor/comm/transport.h"

namespace dtensor::comm {

// Thread-safe.
class Standing {
 public:
  struct Setting {
    uint64_t comm = 0;
    int rank = 0;                          // of this rank, in the Comm
    std::vector<int> members;              // ranks of the world, in the order of the Comm
    std::vector<uint64_t> ancestors = {};  // the Comms that this is a group of, nearest first
    int world_size = 0;
    std::shared_ptr<Control> control;
    std::chrono::milliseconds stall{500};
    std::chrono::milliseconds answer{2000};
  };
  explicit Standing(Setting setting) : setting_(std::move(setting)) {}
  const Setting& setting() const { return setting_; }

  // Around a call. Both throw TransportError (kInterrupted) where the Comm has ended.
  void enter(const Call& call);
  void leave();
  // Waits for a transfer with rank `peer` of the Comm; throws TransportError, kInterrupted where
  // the Comm ends meanwhile.
  void wait(Transfer& transfer, int peer);
  // Told of the verdict when it is here, once, from any thread; at once where it is here already.
  // Short.
  void on_end(std::function<void(const Verdict&)> told);
  // This rank's answer to "where are you?".
  Position where() const;

  // Ends this Comm here, and asks the Watch to end it everywhere. Does not block.
  void request_abort(std::string reason);
  // What the Watch had no time for, where this Comm goes right after. Blocks, bounded.
  void finish_abort() noexcept;

  // Agrees with the others on why the Comm ends, and returns what stands. These block, bounded.
  Verdict conclude(const Verdict& proposal);
  Verdict conclude_mismatch(int peer, const std::string& detail);
  Verdict conclude_transport(const TransportError& error);

  // One look, by the Watch: are there news, does the wait stall, has the deadline passed?
  void look();

 private:
  void check_ended();
  Verdict own_abort(std::string reason) const;
  // The verdict is here: wakes whoever waits for data.
  void end(Verdict verdict);
  std::optional<Verdict> ended() const;
  int waiting_for() const;
  std::optional<Verdict> find_fault(bool overdue) const;
  // Why a Comm that this is a group of has ended, where that ends this one, too.
  std::optional<Verdict> ended_above() const;
  std::string losses_elsewhere() const;

  const Setting setting_;

  mutable std::mutex mutex_;
  std::condition_variable ended_changed_;
  // Guarded by mutex_.
  Position position_;  // its `call` is filled by where()
  CallKey key_;
  std::string label_;
  Deadline deadline_;
  std::chrono::steady_clock::time_point next_look_;
  Transfer* waiting_ = nullptr;
  int waiting_for_ = -1;  // rank of the Comm
  std::optional<Verdict> verdict_;
  std::optional<std::string> abort_reason_;
  std::function<void(const Verdict&)> told_;
};

// Thread-safe.
class Watch {
 public:
  explicit Watch(std::shared_ptr<Control> control);
  ~Watch();
  void add(std::weak_ptr<Standing> standing);
  // Something happened: look soon.
  void wake() noexcept;

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<std::weak_ptr<Standing>> standings_;
  bool news_ = false;
  bool stop_ = false;

  std::shared_ptr<void> subscription_;
  std::thread thread_;
};

}  // namespace dtensor::comm
