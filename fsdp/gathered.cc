#include "dtensor/fsdp/gathered.h"

#include <algorithm>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/fsdp/slow_tier.h"
#include "dtensor/fsdp/trace.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor::fsdp {

Gathered::Gathered(std::vector<Member> members, std::shared_ptr<const GatherLane> lane,
                   Counted counted)
    : lane_(std::move(lane)),
      members_(std::move(members)),
      pieces_(members_.size()),
      stats_(shared_stats()),
      counted_(counted == Counted::kYes) {}

Gathered::~Gathered() {
  try {
    release_all();
  } catch (const std::exception&) {
    // A failed gather has thrown where it was used; here its memory goes with the tensors.
  }
  if (counted_now_) stats_->add_groups(-1);
}

void Gathered::check_unchanged(size_t index, const Tensor& shard) {
  Piece& piece = pieces_[index];
  if (shard.storage()->is_empty()) {
    throw ArgumentError("parameter \"" + members_[index].parameter.name() +
                        "\" was made under DeferredInit and has no memory; call nn::materialize");
  }
  if (piece.shard == nullptr) {
    piece.shard = shard.storage();
    piece.version = shard.storage()->version();
  }
  if (piece.shard != shard.storage() || piece.version != shard.storage()->version()) {
    throw Error("backward needs parameter \"" + members_[index].parameter.name() +
                "\" as it was in forward, and it was written since; step after backward");
  }
}

void Gathered::prepare(size_t index, std::vector<MoveItem>& items) {
  const Member& member = members_[index];
  Piece& piece = pieces_[index];
  const DTensor& value = member.parameter.value();
  const Tensor& shard = value.local_tensor();
  check_unchanged(index, shard);
  const bool moves = !equal_boundaries(value.layout(), member.gathered);
  piece.own = moves || value.dtype() != member.dtype;
  if (!piece.own) {
    piece.tensor = shard;
    piece.held = true;
    return;
  }
  if (piece.tensor.defined()) {
    piece.tensor.storage()->refill();
  } else {
    const Shape shape = member.gathered.local_shape(*lane_->mesh().coordinate());
    piece.tensor = Tensor::empty(shape, member.dtype);
  }
  if (moves) {
    const bool kept = piece.kept.defined();
    items.push_back({.local = kept ? piece.kept : shard.to(member.dtype),
                     .from = kept ? *member.kept : value.layout(),
                     .to = member.gathered,
                     .into = piece.tensor,
                     .label = member.parameter.name()});
    piece.held = true;
    piece.arriving = true;
    return;
  }
  // The same values as at first: a tensor saved from them is not out of date.
  const uint64_t version = piece.tensor.storage()->version();
  kernels::cast(shard, piece.tensor);
  piece.tensor.storage()->restore_version(version);
  piece.held = true;
}

void Gathered::start() {
  if (pieces_.empty() || !lane_->mesh().coordinate()) return;
  if (failed_) {
    throw Error("the gather of \"" + members_.front().parameter.name() +
                "\" and what is gathered with it has failed before; run the forward again");
  }
  std::vector<MoveItem> items;
  try {
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (!pieces_[i].held) prepare(i, items);
    }
  } catch (...) {  // nothing was sent
    for (Piece& piece : pieces_) {
      if (std::exchange(piece.arriving, false) || !piece.held) free_memory(piece);
    }
    throw;
  }
  if (counted_ && !counted_now_) {
    stats_->add_groups(1);
    counted_now_ = true;
  }
  if (items.empty()) return;
  issued_ = std::chrono::steady_clock::now();
  try {
    move_ = Move::start(lane_->mesh(), std::move(items), {.op = "fsdp"});
  } catch (...) {
    abandon_arriving();
    throw;
  }
}

void Gathered::finish() {
  if (!move_) return;
  Move move = std::move(*move_);
  move_.reset();
  const auto begin = std::chrono::steady_clock::now();
  try {
    move.finish();
  } catch (...) {
    abandon_arriving();
    throw;
  }
  for (Piece& piece : pieces_) piece.arriving = false;
  const auto end = std::chrono::steady_clock::now();
  stats_->in_flight += end - issued_;
  stats_->waited += end - begin;
  for (const Member& member : members_) let_go(member.parameter);
  if (is_tracing()) trace({Phase::kGather, name, issued_, end, size_bytes()});
}

void Gathered::free_memory(Piece& piece) {
  // What a gather that failed may still write to goes with the last who holds it.
  if (!failed_ && piece.tensor.defined() && piece.own) piece.tensor.storage()->release();
  piece.held = false;
  count_if_empty();
}

void Gathered::free_all() {
  for (Piece& piece : pieces_) {
    free_memory(piece);
    piece.kept = Tensor();
  }
}

void Gathered::abandon_arriving() {
  failed_ = true;
  for (Piece& piece : pieces_) {
    if (std::exchange(piece.arriving, false)) piece.held = false;
  }
  count_if_empty();
}

void Gathered::count_if_empty() {
  if (!counted_now_ || !is_empty()) return;
  stats_->add_groups(-1);
  counted_now_ = false;
}

void Gathered::release(size_t index) {
  finish();
  free_memory(pieces_[index]);
  pieces_[index].kept = Tensor();
}

void Gathered::release_all() {
  try {
    finish();
  } catch (...) {
    free_all();
    throw;
  }
  free_all();
}

void Gathered::shrink() {
  finish();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    Piece& piece = pieces_[i];
    const Member& member = members_[i];
    const bool moves = !equal_boundaries(member.parameter.value().layout(), member.gathered);
    if (piece.held && moves && member.kept) {
      const MoveItem slice{.local = piece.tensor, .from = member.gathered, .to = *member.kept};
      const Tensor part = move_local(lane_->mesh(), slice, {.op = "fsdp"});
      piece.kept = part.storage() == piece.tensor.storage() ? part.clone() : part;
    }
    free_memory(piece);
  }
}

bool Gathered::is_empty() const {
  return std::ranges::none_of(pieces_, [](const Piece& piece) { return piece.held; });
}

bool Gathered::is_current() const {
  if (failed_) return false;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const DTensor& value = members_[i].parameter.value();
    if (!value.has_local()) continue;
    const std::shared_ptr<Storage>& shard = value.local_tensor().storage();
    if (!pieces_[i].held || pieces_[i].shard != shard || pieces_[i].version != shard->version()) {
      return false;
    }
  }
  return true;
}

int64_t Gathered::size_bytes() const {
  int64_t bytes = 0;
  for (const Piece& piece : pieces_) {
    if (piece.held && piece.own) bytes += piece.tensor.size_bytes();
  }
  return bytes;
}

}  // namespace dtensor::fsdp
