// Pending<T>: a T whose data is under way. wait() gives it, once. Every rank waits for, or forgets,
// the same ones in the same order. One that goes without wait() is forgotten: messages that were
// issued run out and their memory is kept until then; later steps of its plans are not issued, on
// any rank. What it was made of must not be written before wait() returned.

#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/tensor/move.h"

namespace dtensor {

template <class T>
class [[nodiscard]] Pending {
 public:
  // `make` turns the moved tensors into the result.
  Pending(Move move, std::function<T(std::vector<Tensor>)> make)
      : move_(std::move(move)), make_(std::move(make)) {}

  // Without blocking: have the collectives that were issued ended?
  bool ready() const {
    check();
    return move_->ready();
  }
  // Throws CommError; ArgumentError a second time, or after forget().
  T wait() {
    check();
    Move move = std::move(*move_);
    move_.reset();
    return std::exchange(make_, nullptr)(move.finish());
  }
  // The same data as something else.
  template <class U, class F>
  Pending<U> then(F convert) && {
    check();
    Move move = std::move(*move_);
    move_.reset();
    return Pending<U>(std::move(move),
                      [make = std::exchange(make_, nullptr), convert = std::move(convert)](
                          std::vector<Tensor> moved) { return convert(make(std::move(moved))); });
  }
  // Nobody wants it any more. No wait.
  void forget() {
    move_.reset();
    make_ = nullptr;
  }

 private:
  void check() const {
    if (!move_) throw ArgumentError("a Pending that was waited for, or forgotten, was used again");
  }

  std::optional<Move> move_;
  std::function<T(std::vector<Tensor>)> make_;
};

}  // namespace dtensor
