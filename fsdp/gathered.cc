#include "dtensor/fsdp/gathered.h"

#include <algorithm>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor::fsdp {

Gathered::Gathered(std::vector<Member> members, DeviceMesh mesh, Counted counted)
    : members_(std::move(members)),
      pieces_(members_.size()),
      mesh_(std::move(mesh)),
      live_(counted == Counted::kYes ? LiveGroups::current() : nullptr) {}

Gathered::~Gathered() {
  try {
    release_all();
  } catch (const std::exception&) {
    // A failed gather has thrown where it was used; here its memory goes with the tensors.
  }
  if (counted_now_) live_->add(-1);
}

void Gathered::check_unchanged(size_t index, const Tensor& shard) {
  Piece& piece = pieces_[index];
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
  piece.held = true;
  const bool moves = !equal_boundaries(value.layout(), member.gathered);
  piece.own = moves || value.dtype() != member.dtype;
  if (!piece.own) {
    piece.tensor = shard;
    return;
  }
  if (piece.tensor.defined()) {
    piece.tensor.storage()->refill();
  } else {
    const Shape shape = member.gathered.local_shape(*mesh_.coordinate());
    piece.tensor = Tensor::empty(shape, member.dtype);
  }
  if (moves) {
    items.push_back({.local = shard.to(member.dtype),
                     .from = value.layout(),
                     .to = member.gathered,
                     .into = piece.tensor,
                     .label = member.parameter.name()});
    return;
  }
  // The same values as at first: a tensor saved from them is not out of date.
  const uint64_t version = piece.tensor.storage()->version();
  kernels::cast(shard, piece.tensor);
  piece.tensor.storage()->restore_version(version);
}

void Gathered::start() {
  if (pieces_.empty() || !mesh_.coordinate()) return;
  std::vector<MoveItem> items;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (!pieces_[i].held) prepare(i, items);
  }
  if (live_ != nullptr && !counted_now_) {
    live_->add(1);
    counted_now_ = true;
  }
  if (!items.empty()) move_ = Move::start(mesh_, std::move(items), {.op = "fsdp"});
}

void Gathered::finish() {
  if (!move_) return;
  Move move = std::move(*move_);
  move_.reset();
  move.finish();
}

void Gathered::release(size_t index) {
  finish();
  Piece& piece = pieces_[index];
  if (piece.held && piece.own) piece.tensor.storage()->release();
  piece.held = false;
  if (counted_now_ && is_empty()) {
    live_->add(-1);
    counted_now_ = false;
  }
}

void Gathered::release_all() {
  for (size_t i = 0; i < pieces_.size(); ++i) release(i);
}

bool Gathered::is_empty() const {
  return std::ranges::none_of(pieces_, [](const Piece& piece) { return piece.held; });
}

}  // namespace dtensor::fsdp
