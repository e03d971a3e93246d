// Worlds of threads whose calls go by comm/nccl, over the stand-in for NCCL.

#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "dtensor/comm/algorithms/transport_comm.h"
#include "dtensor/comm/backend.h"
#include "dtensor/comm/comm.h"
#include "dtensor/comm/local/local_control.h"
#include "dtensor/comm/local/local_transport.h"
#include "dtensor/comm/nccl/nccl_mover.h"

namespace dtensor::testing {

// Hands every buffer on as memory of the device. In the stand-in all memory is.
class OnTheDevice : public comm::Backend {
 public:
  explicit OnTheDevice(std::shared_ptr<comm::Backend> inner) : inner_(std::move(inner)) {
    capabilities_ = inner_->capabilities();
    capabilities_.support = [device = inner_->capabilities().support](auto op, auto dtype,
                                                                      auto reduce, auto) {
      return device(op, dtype, reduce, DeviceType::kCuda);
    };
  }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void issue(comm::Call& call) override {
    for (auto& b : call.in) b.device.type = DeviceType::kCuda;
    for (auto& b : call.out) b.device.type = DeviceType::kCuda;
    for (auto& leg : call.legs) leg.buffer.device.type = DeviceType::kCuda;
    inner_->issue(call);
  }
  void run(const comm::Call& call) override { inner_->run(call); }
  std::shared_ptr<comm::Backend> group(std::span<const int> ranks, std::string_view name) override {
    return std::make_shared<OnTheDevice>(inner_->group(ranks, name));
  }
  void abort(std::string_view reason) noexcept override { inner_->abort(reason); }
  const comm::Capabilities& capabilities() const override { return capabilities_; }
  comm::Counters counters() const override { return inner_->counters(); }
  const std::string& run_id() const override { return inner_->run_id(); }
  int64_t generation() const override { return inner_->generation(); }

 private:
  const std::shared_ptr<comm::Backend> inner_;
  comm::Capabilities capabilities_;
};

// The backends of a world, by rank: CPU memory over `local`, CUDA memory over NCCL.
inline std::vector<std::shared_ptr<comm::Backend>> hybrid_backends(int size) {
  const auto board = std::make_shared<comm::local::Board>(size);
  const auto transports = comm::local::make_transports(size, {});
  std::vector<std::shared_ptr<comm::Backend>> backends;
  for (int r = 0; r < size; ++r) {
    comm::WorldParts parts;
    parts.transport = transports[static_cast<size_t>(r)];
    parts.control = board->control(r);
    parts.backend = "hybrid";
    parts.run_id = "test";
    parts.device = comm::nccl::make_nccl_mover(0);
    backends.push_back(comm::make_transport_backend(std::move(parts)));
  }
  return backends;
}

inline std::vector<std::unique_ptr<comm::Comm>> hybrid_world(int size) {
  std::vector<std::unique_ptr<comm::Comm>> world;
  for (auto& b : hybrid_backends(size)) {
    world.push_back(std::make_unique<comm::Comm>(std::move(b), "world"));
  }
  return world;
}

// The same with every buffer on the device.
inline std::vector<std::unique_ptr<comm::Comm>> device_world(int size) {
  std::vector<std::unique_ptr<comm::Comm>> world;
  for (auto& b : hybrid_backends(size)) {
    world.push_back(
        std::make_unique<comm::Comm>(std::make_shared<OnTheDevice>(std::move(b)), "world"));
  }
  return world;
}

}  // namespace dtensor::testing
