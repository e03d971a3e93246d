#include "dtensor/comm/algorithms/transport_comm.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/algorithms/choice.h"
#include "dtensor/comm/algorithms/collectives.h"
#include "dtensor/comm/algorithms/device_call.h"
#include "dtensor/comm/algorithms/session.h"
#include "dtensor/comm/algorithms/standing.h"
#include "dtensor/comm/hash.h"
#include "dtensor/comm/shm/host_comm.h"

namespace dtensor::comm {
namespace {

// What all Comms of one rank share. The Watch goes first: it uses the rest.
struct World {
  explicit World(WorldParts given) : parts(std::move(given)), watch(parts.control) {}

  WorldParts parts;
  Watch watch;
};

class TransportBackend : public Backend {
 public:
  TransportBackend(std::shared_ptr<World> world, uint64_t id, std::vector<int> members, int rank,
                   std::shared_ptr<Link> parent)
      : world_(std::move(world)), id_(id), rank_(rank), size_(static_cast<int>(members.size())) {
    const WorldParts& parts = world_->parts;
    link_ = std::make_shared<Link>();
    link_->transport = parts.transport;
    std::vector<uint64_t> ancestors;
    if (parent) {
      const Standing::Setting& above = parent->standing->setting();
      ancestors = above.ancestors;
      ancestors.insert(ancestors.begin(), above.comm);
    }
    link_->parent = std::move(parent);
    link_->standing =
        std::make_shared<Standing>(Standing::Setting{.comm = id,
                                                     .rank = rank,
                                                     .members = std::move(members),
                                                     .ancestors = std::move(ancestors),
                                                     .world_size = parts.transport->size(),
                                                     .control = parts.control,
                                                     .stall = parts.stall,
                                                     .answer = parts.answer});
    const std::vector<int>& all = link_->standing->setting().members;
    // Beside a device all calls are agreed on in one way: a rank cannot always tell which is meant.
    if (parts.neighbours && !parts.device && size_ > 1 && size_ <= shm::kMostRanks &&
        parts.neighbours->have(all)) {
      on_host_ = std::make_unique<shm::HostComm>(parts.neighbours, id, rank, all);
    }
    const Path path = on_host_ ? Path::kHost : Path::kTransport;
    link_->choice = choose(path, size_, parts.one_step_bytes);
    capabilities_.backend = parts.backend;
    capabilities_.version = parts.version;
    capabilities_.support = transport_support;
    if (parts.device) add_device(parts);
    capabilities_.algorithm = [path, choice = link_->choice](OpKind op, int64_t bytes) {
      return std::string(algorithm_of(op, bytes, path, choice));
    };
    served_ = parts.control->serve(id, [standing = link_->standing] { return standing->where(); });
    world_->watch.add(link_->standing);
  }
  ~TransportBackend() override { link_->standing->finish_abort(); }
  TransportBackend(const TransportBackend&) = delete;
  TransportBackend& operator=(const TransportBackend&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const Capabilities& capabilities() const override { return capabilities_; }
  const std::string& run_id() const override { return world_->parts.run_id; }
  int64_t generation() const override { return world_->parts.generation; }

  Counters counters() const override {
    return {link_->calls.load(), link_->payload_bytes.load(), link_->wire_bytes.load(),
            link_->bytes_in_place.load()};
  }

  void abort(std::string_view reason) noexcept override {
    link_->standing->request_abort(std::string(reason));
    world_->watch.wake();
  }

  void on_end(std::function<void(std::string_view)> told) override {
    link_->standing->on_end([told = std::move(told)](const Verdict& v) {
      told(fmt::format("{}, rank {} of the world ({}): {}", name_of(v.kind), v.culprit,
                       v.proved ? "proved" : "suspected", v.detail));
    });
  }
  Memory allocate(int64_t bytes) override;
  std::weak_ptr<BlockSource> large_blocks() const override;

  void issue(Call& call) override {
    if (on_device(call)) world_->parts.device->issue(call);
  }

  void run(const Call& call) override;
  std::shared_ptr<Backend> group(std::span<const int> ranks, std::string_view name) override;

 private:
  void add_device(const WorldParts& parts);
  void run_on_device(Session& session, const Call& call);
  void wait_for(Transfer& transfer);
  [[noreturn]] void fail(const Verdict& verdict) const;

  const std::shared_ptr<World> world_;
  const uint64_t id_;
  const int rank_;
  const int size_;
  Capabilities capabilities_;
  std::shared_ptr<Link> link_;
  std::unique_ptr<shm::HostComm> on_host_;  // nullptr where the transport moves the data
  std::unique_ptr<DeviceGroup> device_;     // of the thread that runs calls
  std::shared_ptr<void> served_;
  std::mutex mutex_;
  std::set<uint64_t> groups_;  // guarded by mutex_; ids that group() has given
};

void TransportBackend::fail(const Verdict& verdict) const {
  const auto& members = link_->standing->setting().members;
  const auto at = std::ranges::find(members, verdict.culprit);
  throw CommError({.kind = verdict.kind,
                   .culprit = at == members.end() ? -1 : static_cast<int>(at - members.begin()),
                   .proved = verdict.proved,
                   .culprit_in_world = verdict.culprit,
                   .detail = verdict.detail});
}

void TransportBackend::add_device(const WorldParts& parts) {
  const Capabilities device = parts.device->capabilities();
  capabilities_.float32_sums_of_16_bit = device.float32_sums_of_16_bit;
  capabilities_.fixed_order = device.fixed_order;
  capabilities_.support = [cpu = parts.takes_cpu, device = device.support](
                              OpKind op, DType dtype, ReduceOp reduce, DeviceType type) {
    if (type != DeviceType::kCpu) return device(op, dtype, reduce, type);
    return cpu ? transport_support(op, dtype, reduce, type) : Support::kNone;
  };
}

// All ranks are in this call; which rank holds it up, a device does not tell.
void TransportBackend::wait_for(Transfer& transfer) {
  link_->standing->wait(transfer, (rank_ + 1) % size_);
}

void TransportBackend::run_on_device(Session& session, const Call& call) {
  if (device_ == nullptr) {
    DeviceMover& mover = *world_->parts.device;
    std::string identity(kIdentityBytes, '\0');
    if (rank_ == 0) identity = mover.new_identity();
    device_ = mover.group(from_rank_0(session, std::move(identity)), rank_, size_);
    wait_for(*device_->connect());
  }
  if (!on_device(call)) return;
  link_->count(0, device_payload(call, rank_, size_));
  wait_for(*device_->start(call));
}

void TransportBackend::run(const Call& call) {
  Standing& standing = *link_->standing;
  try {
    standing.enter(call);
    for (Link* link = link_.get(); link != nullptr; link = link->parent.get()) ++link->calls;
    if (on_host_) {
      on_host_->run(*link_, call);
    } else {
      Session session(*link_, call);
      if (on_device(call)) {
        agree_on_device_call(session, call);
      } else {
        run_collective(session, call);
      }
      if (world_->parts.device != nullptr) run_on_device(session, call);
    }
    standing.leave();
  } catch (const TransportError& e) {
    fail(standing.conclude_transport(e));
  } catch (const CallsDiffer& e) {
    fail(standing.conclude_mismatch(e.peer, e.what()));
  }
}

Memory TransportBackend::allocate(int64_t bytes) {
  if (world_->parts.neighbours && bytes > 0) {
    if (std::shared_ptr<void> data = world_->parts.neighbours->blocks()->take(bytes)) {
      return {std::move(data), bytes};
    }
  }
  return Memory::of_heap(bytes);
}

// Beside a device calls do not go through shared memory.
std::weak_ptr<BlockSource> TransportBackend::large_blocks() const {
  if (!world_->parts.neighbours || world_->parts.device) return {};
  return world_->parts.neighbours->blocks();
}

std::shared_ptr<Backend> TransportBackend::group(std::span<const int> ranks,
                                                 std::string_view name) {
  const auto& members = link_->standing->setting().members;
  uint64_t id = internal::mix(id_, name);
  std::vector<int> world_ranks;
  int mine = -1;
  for (const int r : ranks) {
    if (r < 0 || r >= size_) {
      throw ArgumentError(
          fmt::format("group \"{}\": rank {} is outside 0..{}", name, r, size_ - 1));
    }
    const int world_rank = members[static_cast<size_t>(r)];
    if (std::ranges::find(world_ranks, world_rank) != world_ranks.end()) {
      throw ArgumentError(fmt::format("group \"{}\": rank {} is named twice", name, r));
    }
    if (r == rank_) mine = static_cast<int>(world_ranks.size());
    world_ranks.push_back(world_rank);
    id = internal::mix(id, static_cast<uint64_t>(r));
  }
  if (mine < 0) {
    throw ArgumentError(fmt::format(
        "group \"{}\": rank {} is not among its ranks; only they make it", name, rank_));
  }
  {
    const std::lock_guard lock(mutex_);
    if (!groups_.insert(id).second) {
      throw ArgumentError(fmt::format(
          "group \"{}\" of these ranks was made before; keep it, or give another name", name));
    }
  }
  try {
    return std::make_shared<TransportBackend>(world_, id, std::move(world_ranks), mine, link_);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    groups_.erase(id);  // there is none
    throw;
  }
}

}  // namespace

std::shared_ptr<Backend> make_transport_backend(WorldParts parts) {
  const int rank = parts.transport->rank();
  std::vector<int> members;
  for (int r = 0; r < parts.transport->size(); ++r) members.push_back(r);
  const uint64_t id = internal::mix(internal::mix(members.size(), parts.run_id),
                                    static_cast<uint64_t>(parts.generation));
  auto world = std::make_shared<World>(std::move(parts));
  return std::make_shared<TransportBackend>(std::move(world), id, std::move(members), rank,
                                            nullptr);
}

}  // namespace dtensor::comm
