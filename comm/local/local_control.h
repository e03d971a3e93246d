// The Control of ranks that are threads of one process: shared memory. A thread cannot die alone,
// so a rank is lost only where a test says so.

#pragma once

#include <memory>
#include <string>

#include "dtensor/comm/control.h"

namespace dtensor::comm::local {

// What the Controls of one world share. Thread-safe.
class Board {
 public:
  explicit Board(int size);
  ~Board();
  std::shared_ptr<Control> control(int rank);

  // As though the process of a rank had died: every rank hears of it.
  void lose(int rank, std::string detail);
  // As though the process of a rank had been stopped: it does not answer until it is resumed.
  void stop(int rank);
  void resume(int rank);
  // How often a rank was asked where it is.
  int64_t questions(int rank) const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace dtensor::comm::local
