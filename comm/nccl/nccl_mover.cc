#include "dtensor/comm/nccl/nccl_mover.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <utility>

#include "dtensor/base/patience.h"
#include "dtensor/comm/nccl/enqueue.h"
#include "dtensor/comm/nccl/reaper.h"
#include "dtensor/comm/nccl/status.h"

namespace dtensor::comm::nccl {
namespace {

static_assert(kIdentityBytes == NCCL_UNIQUE_ID_BYTES);

// How long who gives up waits for NCCL to let go of the memory.
constexpr std::chrono::seconds kAbort{5};

// A look asks the device: a microsecond or two.
constexpr int64_t kSpins = 20;

class NcclGroup;

// Something that NCCL does, looked at again and again.
class NcclTransfer : public Transfer {
 public:
  // `step` says whether it is complete; throws where NCCL reports an error.
  NcclTransfer(NcclGroup& group, std::function<bool()> step)
      : group_(group), step_(std::move(step)) {}
  ~NcclTransfer() override;
  NcclTransfer(const NcclTransfer&) = delete;
  NcclTransfer& operator=(const NcclTransfer&) = delete;

  bool ready() override { return done_; }
  void wait(Deadline deadline) override {
    Patience patience(kSpins);
    while (!done_) {
      if (interrupted_.exchange(false)) {
        throw TransportError(TransportError::Kind::kInterrupted, -1, "interrupted");
      }
      try {
        done_ = step_();
      } catch (const Error& e) {
        throw TransportError(TransportError::Kind::kPeer, -1, e.what());
      }
      if (!done_ && patience.time_to_look() && deadline.expired()) {
        throw TransportError(TransportError::Kind::kTimeout, -1, "not done in time");
      }
      if (!done_) patience.pause();
    }
  }
  void interrupt() noexcept override { interrupted_.store(true); }

 private:
  NcclGroup& group_;
  const std::function<bool()> step_;
  bool done_ = false;
  std::atomic<bool> interrupted_{false};
};

class NcclGroup : public DeviceGroup {
 public:
  NcclGroup(std::shared_ptr<Reaper> reaper, int device, const std::string& identity, int rank,
            int size)
      : reaper_(std::move(reaper)), device_(device) {
    at_.rank = rank;
    at_.size = size;
    std::memcpy(&id_, identity.data(), sizeof(id_));
  }

  // All its calls have ended: nobody waits for NCCL.
  ~NcclGroup() override {
    const auto let_go = [event = done_, stream = at_.stream] {
      if (event != nullptr) cudaEventDestroy(event);
      if (stream != nullptr) cudaStreamDestroy(stream);
    };
    if (at_.comm == nullptr) {
      let_go();
    } else {
      reaper_->finish(at_.comm, device_, let_go);
    }
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  std::unique_ptr<Transfer> connect() override {
    const OnDevice scope(device_);
    check(cudaStreamCreateWithFlags(&at_.stream, cudaStreamNonBlocking), "stream");
    check(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "event");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    check(ncclCommInitRankConfig(&at_.comm, at_.size, id_, at_.rank, &config), "start");
    return std::make_unique<NcclTransfer>(*this, [this] { return settled(); });
  }

  std::unique_ptr<Transfer> start(const Call& call) override {
    if (at_.comm == nullptr) throw Error("nccl: the communicator has ended");
    const OnDevice scope(device_);
    if (call.issued != nullptr) {
      check(cudaStreamWaitEvent(at_.stream, static_cast<cudaEvent_t>(call.issued.get()), 0),
            "wait for the stream");
    }
    auto transfer = std::make_unique<NcclTransfer>(
        *this, [this, recorded = false]() mutable { return moved(recorded); });
    enqueue(call, at_);
    return transfer;
  }

  void abort() {
    if (at_.comm != nullptr) reaper_->abort(at_.comm, device_, kAbort);
    at_.comm = nullptr;
  }

 private:
  // Has NCCL done what it began, so that more may be asked? Throws its asynchronous error.
  bool settled() const {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(at_.comm, &state), "state");
    check(state, "in the background");
    return state == ncclSuccess;
  }

  bool moved(bool& recorded) {
    if (!settled()) return false;
    if (!recorded) check(cudaEventRecord(done_, at_.stream), "event");
    recorded = true;
    const cudaError_t status = cudaEventQuery(done_);
    if (status == cudaErrorNotReady) return false;
    check(status, "moving data");
    return true;
  }

  const std::shared_ptr<Reaper> reaper_;
  const int device_;
  ncclUniqueId id_ = {};
  Place at_;
  cudaEvent_t done_ = nullptr;
};

NcclTransfer::~NcclTransfer() {
  if (!done_) group_.abort();
}

class NcclMover : public DeviceMover {
 public:
  explicit NcclMover(int device) : device_(device) {}

  Capabilities capabilities() const override {
    Capabilities c;
    c.backend = "nccl";
    c.version = nccl_version();
    c.float32_sums_of_16_bit = false;
    c.fixed_order = false;
    c.support = [](OpKind op, DType dtype, ReduceOp reduce, DeviceType device) {
      if (device != DeviceType::kCuda) return Support::kNone;
      return transport_support(op, dtype, reduce, DeviceType::kCpu);
    };
    return c;
  }

  void issue(Call& call) override {
    check_device(call);
    const OnDevice scope(device_);
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
    call.issued = std::shared_ptr<void>(
        event, [](void* e) { cudaEventDestroy(static_cast<cudaEvent_t>(e)); });
    check(cudaEventRecord(event, static_cast<cudaStream_t>(call.stream.handle)),
          "event on the call's stream");
  }

  std::string new_identity() override {
    ncclUniqueId id = {};
    check(ncclGetUniqueId(&id), "identity");
    return std::string(id.internal, sizeof(id.internal));
  }

  std::unique_ptr<DeviceGroup> group(const std::string& identity, int rank, int size) override {
    return std::make_unique<NcclGroup>(reaper_, device_, identity, rank, size);
  }

 private:
  void check_device(const Call& call) const {
    const auto look = [&](const ConstBuffer& b) {
      if (b.device.type == DeviceType::kCpu || b.device.index == device_) return;
      throw ArgumentError(fmt::format(
          "{}: a buffer is on CUDA device {}, this rank's is {}; say device={} in the comm URL",
          name_of(call.op), b.device.index, device_, b.device.index));
    };
    for (const ConstBuffer& b : call.in) look(b);
    for (const Buffer& b : call.out) look(b);
    for (const P2P& leg : call.legs) look(leg.buffer);
  }

  const int device_;
  const std::shared_ptr<Reaper> reaper_ = std::make_shared<Reaper>();
};

}  // namespace

int device_count() {
  int count = 0;  // CUDA does not touch it where there is no driver
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

int current_device() {
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess ? device : 0;
}

std::shared_ptr<DeviceMover> make_nccl_mover(int device) {
  const int count = device_count();
  if (device >= count) {
    throw Error(count == 0 ? std::string("nccl: this machine has no CUDA device that works; "
                                         "`dtensor doctor` says more")
                           : fmt::format("nccl: no CUDA device {}; there are {}", device, count));
  }
  return std::make_shared<NcclMover>(device);
}

std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "unknown";
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace dtensor::comm::nccl
