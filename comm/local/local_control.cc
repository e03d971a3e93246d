#include "dtensor/comm/local/local_control.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace dtensor::comm::local {

struct Board::State {
  explicit State(int size)
      : answers(static_cast<size_t>(size)),
        losses(static_cast<size_t>(size)),
        stopped(static_cast<size_t>(size), false),
        controls(static_cast<size_t>(size), 0),
        questions(static_cast<size_t>(size), 0) {}

  struct Answer {
    std::function<Position()> where;  // empty once closed
    Position last;
  };

  // Calls every subscriber. Holds the mutex that unsubscribing takes, so that none is called after
  // its handle has gone; a subscriber takes no lock of the Board.
  void tell_all() {
    const std::lock_guard lock(subscribers_mutex);
    for (const auto& [id, on_event] : subscribers) on_event();
  }

  // A `where` is called with this mutex held, and takes no lock of the Board.
  std::mutex mutex;
  // Guarded by mutex.
  std::vector<std::map<uint64_t, Answer>> answers;  // by rank, by Comm
  std::map<uint64_t, Verdict> verdicts;
  std::vector<std::optional<Control::Loss>> losses;
  std::vector<bool> stopped;
  std::vector<int> controls;  // of a rank; -1 once it had one and has none
  std::vector<int64_t> questions;

  std::mutex subscribers_mutex;
  // Guarded by subscribers_mutex.
  std::map<int64_t, std::function<void()>> subscribers;
  int64_t next_subscriber = 0;
};

namespace {

class LocalControl : public Control {
 public:
  LocalControl(std::shared_ptr<Board::State> state, int rank)
      : state_(std::move(state)), rank_(static_cast<size_t>(rank)) {
    const std::lock_guard lock(state_->mutex);
    int& controls = state_->controls[rank_];
    controls = std::max(controls, 0) + 1;
  }
  ~LocalControl() override {
    const std::lock_guard lock(state_->mutex);
    int& controls = state_->controls[rank_];
    if (--controls == 0) controls = -1;
  }

  std::shared_ptr<void> serve(uint64_t comm, std::function<Position()> where) override {
    {
      const std::lock_guard lock(state_->mutex);
      state_->answers[rank_][comm] = {std::move(where), {}};
    }
    return {nullptr, [state = state_, rank = rank_, comm](void*) {
              const std::lock_guard lock(state->mutex);
              auto& answer = state->answers[rank][comm];
              answer.last = answer.where();
              answer.last.closed = true;
              answer.last.inside = false;
              answer.where = nullptr;
            }};
  }

  std::vector<std::optional<Position>> ask(uint64_t comm, std::span<const int> ranks,
                                           std::chrono::nanoseconds) override {
    std::vector<std::optional<Position>> positions;
    const std::lock_guard lock(state_->mutex);
    for (const int r : ranks) {
      const auto rank = static_cast<size_t>(r);
      if (rank != rank_) ++state_->questions[rank];
      if (state_->losses[rank] || state_->stopped[rank]) {
        positions.emplace_back(std::nullopt);
        continue;
      }
      const auto at = state_->answers[rank].find(comm);
      if (at == state_->answers[rank].end()) {
        positions.emplace_back(Position{})->closed = state_->controls[rank] < 0;
      } else {
        positions.emplace_back(at->second.where ? at->second.where() : at->second.last);
      }
    }
    return positions;
  }

  Verdict settle(uint64_t comm, std::span<const int>, const Verdict& proposal,
                 std::chrono::nanoseconds) override {
    Verdict standing;
    {
      const std::lock_guard lock(state_->mutex);
      standing = state_->verdicts.try_emplace(comm, proposal).first->second;
    }
    state_->tell_all();
    return standing;
  }

  std::optional<Verdict> verdict(uint64_t comm) override {
    const std::lock_guard lock(state_->mutex);
    const auto at = state_->verdicts.find(comm);
    if (at == state_->verdicts.end()) return std::nullopt;
    return at->second;
  }

  std::optional<Loss> lost(int rank) override {
    const std::lock_guard lock(state_->mutex);
    return state_->losses[static_cast<size_t>(rank)];
  }

  std::shared_ptr<void> subscribe(std::function<void()> on_event) override {
    const std::lock_guard lock(state_->subscribers_mutex);
    const int64_t id = state_->next_subscriber++;
    state_->subscribers[id] = std::move(on_event);
    return {nullptr, [state = state_, id](void*) {
              const std::lock_guard lock(state->subscribers_mutex);
              state->subscribers.erase(id);
            }};
  }

 private:
  const std::shared_ptr<Board::State> state_;
  const size_t rank_;
};

}  // namespace

Board::Board(int size) : state_(std::make_shared<State>(size)) {}
Board::~Board() = default;

std::shared_ptr<Control> Board::control(int rank) {
  return std::make_shared<LocalControl>(state_, rank);
}

void Board::lose(int rank, std::string detail) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->losses[static_cast<size_t>(rank)] = Control::Loss{true, std::move(detail)};
  }
  state_->tell_all();
}

void Board::stop(int rank) {
  const std::lock_guard lock(state_->mutex);
  state_->stopped[static_cast<size_t>(rank)] = true;
}

int64_t Board::questions(int rank) const {
  const std::lock_guard lock(state_->mutex);
  return state_->questions[static_cast<size_t>(rank)];
}

void Board::resume(int rank) {
  const std::lock_guard lock(state_->mutex);
  state_->stopped[static_cast<size_t>(rank)] = false;
}

}  // namespace dtensor::comm::local
