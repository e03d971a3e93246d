#include "dtensor/checkpoint/world.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <exception>
#include <map>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/attempt.h"
#include "dtensor/comm/root.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/nn/module.h"
#include "dtensor/optim/ema.h"
#include "dtensor/optim/optimizer.h"

namespace dtensor::checkpoint {
namespace {

// The Context's slot: how often this rank has saved, by run and generation. A run that had no
// rendezvous makes its nonce here.
struct Saves {
  std::map<std::string, int64_t> begun;
  std::string own_run_id;
};

std::string make_run_id() {
  std::random_device random;
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y%m%dT%H%M%S}Z-{:08x}{:08x}", fmt::gmtime(now), random(), random());
}

}  // namespace

World::World(comm::Comm& root) : root_(&root), rank_(root.rank()), size_(root.size()) {}

World World::of_tensors(const NamedState& state) {
  const NamedTensor* first = nullptr;
  for (const NamedTensor& t : state.tensors) {
    if (!t.value.mesh().defined()) continue;
    if (first == nullptr) first = &t;
    if (&t.value.mesh().root() == &first->value.mesh().root()) continue;
    throw ArgumentError(fmt::format(
        "checkpoint: \"{}\" and \"{}\" lie on meshes of two root Comms; save them apart",
        first->name, t.name));
  }
  return first == nullptr ? World() : World(first->value.mesh().root());
}

World World::of(const State& state) {
  std::vector<nn::Parameter> parameters;
  if (state.model.module != nullptr) parameters = state.model.module->parameters();
  if (const optim::Optimizer* optimizer = state.optimizer.optimizer) {
    const auto& more = optimizer->parameters();
    parameters.insert(parameters.end(), more.begin(), more.end());
  }
  if (optim::Ema* ema = state.ema.ema) {
    for (const auto& s : ema->state()) parameters.push_back(s.parameter);
  }
  for (const nn::Parameter& p : parameters) {
    if (p.value().mesh().defined()) return World(p.value().mesh().root());
  }
  comm::Comm* root = comm::root();
  return root == nullptr ? World() : World(*root);
}

std::string World::next_attempt_id() const {
  auto& saves = Context::current().slot<Saves>();
  std::string run_id;
  if (root_ != nullptr) {
    run_id = root_->run_id();
  } else {
    if (saves.own_run_id.empty()) saves.own_run_id = make_run_id();
    run_id = saves.own_run_id;
  }
  const int64_t generation = root_ == nullptr ? 0 : root_->generation();
  int64_t& count = saves.begun[attempt_id(run_id, generation, 0)];
  return attempt_id(run_id, generation, count++);
}

std::string World::told_by(int rank, const std::string& text) const {
  if (root_ == nullptr) return text;
  std::array<uint8_t, 4096> message = {};
  constexpr size_t kMostBytes = 4000;
  if (rank_ == rank) {
    const size_t size = std::min(text.size(), kMostBytes);
    message[0] = static_cast<uint8_t>(size & 0xffU);
    message[1] = static_cast<uint8_t>(size >> 8);
    std::copy_n(text.begin(), size, message.begin() + 2);
  }
  const comm::Buffer buffer{message.data(), static_cast<int64_t>(message.size()), DType::kUInt8};
  root_->broadcast(buffer, rank, {.label = "checkpoint"}).wait();
  const size_t size = std::min(message[0] | static_cast<size_t>(message[1]) << 8, kMostBytes);
  return {message.begin() + 2, message.begin() + 2 + static_cast<std::ptrdiff_t>(size)};
}

std::string World::told_by_first(const std::string& text) const { return told_by(0, text); }

void World::together(const std::function<void()>& f) const {
  std::optional<std::string> failure;
  try {
    f();
  } catch (const std::exception& e) {
    failure = e.what();
  }
  int64_t first = failure ? rank_ : size_;
  if (root_ != nullptr) {
    const comm::Buffer buffer{&first, 1, DType::kInt64};
    root_->all_reduce(buffer, buffer, comm::ReduceOp::kMin, {.label = "checkpoint"}).wait();
  }
  if (first == size_) return;
  const std::string text = told_by(static_cast<int>(first), failure.value_or(""));
  if (failure) throw CheckpointError(*failure);
  throw CheckpointError(fmt::format("rank {}: {}", first, text));
}

void World::together_with_own(const std::function<void()>& f) const {
  std::exception_ptr own;
  try {
    together([&] {
      try {
        f();
      } catch (const Error&) {
        own = std::current_exception();
        throw;
      }
    });
  } catch (const CheckpointError&) {
    if (own != nullptr) std::rethrow_exception(own);
    throw;
  }
}

}  // namespace dtensor::checkpoint
