#include "dtensor/comm/ucx/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/base/logging.h"
#include "dtensor/comm/ucx/settings.h"

namespace dtensor::comm::ucx {
namespace {

// How long what was sent may take to go out, when all is closed.
constexpr std::chrono::milliseconds kGoodbye{500};
// How often the thread looks after what is not yet out: at first, and where that takes long.
constexpr std::chrono::milliseconds kLook{1};
constexpr std::chrono::milliseconds kSlowLook{10};
constexpr int kQuickLooks = 100;
// How often UCX is called under one lock.
constexpr int kBurst = 4;

void check(ucs_status_t status, const std::string& what) {
  if (status == UCS_OK) return;
  throw Error(fmt::format("ucx: {}: {}", what, ucs_status_string(status)));
}

class Configuration {
 public:
  Configuration() {
    check(ucp_config_read(nullptr, nullptr, &config_), "cannot read its configuration");
  }
  ~Configuration() { ucp_config_release(config_); }
  Configuration(const Configuration&) = delete;
  Configuration& operator=(const Configuration&) = delete;
  void set(const char* name, const std::string& value) {
    check(ucp_config_modify(config_, name, value.c_str()), fmt::format("{}={}", name, value));
  }
  const ucp_config_t* get() const { return config_; }

 private:
  ucp_config_t* config_ = nullptr;
};

ucp_context_h make_context(const WorkerOptions& o) {
  Configuration config;
  config.set("TLS", o.transports);
  // Messages go out at once, piece by piece: no handshake, and no reading of a peer's memory, which
  // ends the process where the peer has died.
  config.set("RNDV_THRESH", "inf");
  // A call of the system per piece, of 8 KiB as UCX has it; a piece has to fit the 64 KiB that the
  // other side reads.
  if (o.transports.find("tcp") != std::string::npos) config.set("TCP_TX_SEG_SIZE", "56k");
  // A flush of the worker is of what this side holds, and asks nothing of the others.
  config.set("FLUSH_WORKER_EPS", "n");
  if (!o.device.empty()) config.set("NET_DEVICES", o.device);
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_TAG;
  params.estimated_num_eps = static_cast<size_t>(o.size);
  ucp_context_h context = nullptr;
  check(ucp_init(&params, config.get(), &context),
        fmt::format("cannot start with tls={} on {}", o.transports,
                    o.device.empty() ? "all interfaces" : o.device));
  return context;
}

ucp_worker_h make_worker(ucp_context_h context, const WorkerOptions& o) {
  ucp_worker_params_t params = {};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h worker = nullptr;
  check(ucp_worker_create(context, &params, &worker),
        fmt::format("cannot use tls={} (is /dev/shm full? tls=tcp does without)", o.transports));
  return worker;
}

// Of a request without a callback; true where it has ended.
bool ended(ucs_status_ptr_t request) {
  if (request == nullptr || UCS_PTR_IS_ERR(request)) return true;
  return ucp_request_check_status(request) != UCS_INPROGRESS;
}

void free_request(ucs_status_ptr_t request) {
  if (request != nullptr && !UCS_PTR_IS_ERR(request)) ucp_request_free(request);
}

// Calls UCX until all have ended, or the deadline has passed: false.
bool wait_for_all(ucp_worker_h worker, const std::vector<ucs_status_ptr_t>& requests,
                  Deadline deadline) {
  while (!std::ranges::all_of(requests, ended)) {
    if (ucp_worker_progress(worker) != 0) continue;
    if (deadline.expired()) return false;
    std::this_thread::yield();
  }
  return true;
}

void on_sent(void* request, ucs_status_t status, void* user_data) {
  auto& op = *static_cast<Operation*>(user_data);
  op.owner->complete(op, status);
  ucp_request_free(request);
}

void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                 void* user_data) {
  auto& op = *static_cast<Operation*>(user_data);
  if (status == UCS_OK) op.arrived_bytes = static_cast<int64_t>(info->length) - 1;
  op.owner->complete(op, status);
  ucp_request_free(request);
}

// Keeps what is never closed.
template <class T>
void keep_for_good(std::unique_ptr<T> item) {
  static std::mutex mutex;
  static auto* kept = new std::vector<std::unique_ptr<T>>;  // outlives every static object
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(item));
}

}  // namespace

Worker::Handles::~Handles() {
  if (worker != nullptr) ucp_worker_destroy(worker);
  if (datatype != 0) ucp_dt_destroy(datatype);
  if (context != nullptr) ucp_cleanup(context);
}

Worker::Worker(const WorkerOptions& options) : handles_(std::make_unique<Handles>()) {
  settle_process();
  Handles& h = *handles_;
  h.peers.resize(static_cast<size_t>(options.size));
  h.context = make_context(options);
  h.worker = make_worker(h.context, options);
  const ucp_generic_dt_ops_t functions = operation_functions();
  check(ucp_dt_create_generic(&functions, nullptr, &h.datatype), "cannot make a datatype");
  tender_ = std::thread([this] { tend(); });
}

Worker::~Worker() {
  {
    const std::lock_guard lock(tend_mutex_);
    stop_ = true;
  }
  tend_changed_.notify_one();
  tender_.join();
  if (empty_out()) return;
  log(LogLevel::kInfo, "ucx: messages to a lost rank are stuck; their memory is kept");
  keep_for_good(std::move(handles_));
}

std::string Worker::address() const {
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  check(ucp_worker_get_address(handles_->worker, &address, &bytes), "has no address");
  std::string copy(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(handles_->worker, address);
  return copy;
}

void Worker::connect(int peer, const std::string& address) {
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  const std::lock_guard lock(mutex_);
  check(ucp_ep_create(handles_->worker, &params, &handles_->peers[static_cast<size_t>(peer)]),
        fmt::format("cannot reach rank {}", peer));
}

bool Worker::settle(Deadline deadline) {
  const std::lock_guard lock(mutex_);
  std::vector<ucs_status_ptr_t> flushes;
  for (ucp_ep_h peer : handles_->peers) {
    ucp_request_param_t param = {};
    if (peer != nullptr) flushes.push_back(ucp_ep_flush_nbx(peer, &param));
  }
  const bool done = wait_for_all(handles_->worker, flushes, deadline);
  for (const auto request : flushes) free_request(request);
  return done;
}

Operation* Worker::send(int peer, uint64_t tag, const void* data, int64_t bytes) {
  Operation* op = nullptr;
  {
    const std::lock_guard lock(mutex_);
    Handles& h = *handles_;
    op = h.operations.take(const_cast<void*>(data), bytes, true);
    ucp_request_param_t param = {};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.datatype = h.datatype;
    param.cb.send = on_sent;
    param.user_data = op;
    const auto request = ucp_tag_send_nbx(h.peers[static_cast<size_t>(peer)], op, 1, tag, &param);
    if (UCS_PTR_IS_PTR(request)) {
      op->request = request;
    } else {
      h.operations.complete(*op, UCS_PTR_STATUS(request));
    }
  }
  sent_.fetch_add(1);
  if (asleep_.load()) {
    const std::lock_guard lock(tend_mutex_);
    tend_changed_.notify_one();
  }
  return op;
}

Operation* Worker::receive(uint64_t tag, void* data, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  Handles& h = *handles_;
  Operation* op = h.operations.take(data, bytes, false);
  ucp_request_param_t param = {};
  // Always with a callback: it has the length of what came.
  param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_CALLBACK |
                       UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.datatype = h.datatype;
  param.cb.recv = on_received;
  param.user_data = op;
  const auto request = ucp_tag_recv_nbx(h.worker, op, 1, tag, ~ucp_tag_t{0}, &param);
  if (UCS_PTR_IS_ERR(request)) {
    h.operations.complete(*op, UCS_PTR_STATUS(request));
  } else if (!op->done.load(std::memory_order_relaxed)) {
    op->request = request;
  }
  return op;
}

void Worker::release(Operation* op) {
  const std::lock_guard lock(mutex_);
  // UCX gives a receive back at once where nothing of its message has come yet.
  if (op->request != nullptr && !op->sends) ucp_request_cancel(handles_->worker, op->request);
  handles_->operations.release(*op);
}

bool Worker::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  unsigned events = 0;
  for (int i = 0; i < kBurst; ++i) events += ucp_worker_progress(handles_->worker);
  return events > 0;
}

// A send is complete for its sender when UCX has copied it, and may still be on its way out. A
// rank that then computes for long would keep its peers waiting: so this flushes, in its own time.
void Worker::tend() {
  std::unique_lock lock(tend_mutex_);
  int64_t flushed = 0;
  while (!stop_) {
    asleep_.store(true);
    tend_changed_.wait(lock, [&] { return stop_ || sent_.load() != flushed; });
    asleep_.store(false);
    ucs_status_ptr_t flush = nullptr;
    int64_t flushing = flushed;
    for (int looks = 0; !stop_ && (flush != nullptr || sent_.load() != flushed); ++looks) {
      tend_changed_.wait_for(lock, looks < kQuickLooks ? kLook : kSlowLook);
      const std::lock_guard use(mutex_);
      if (flush == nullptr) {
        flushing = sent_.load();
        ucp_request_param_t param = {};
        flush = ucp_worker_flush_nbx(handles_->worker, &param);
      }
      for (int i = 0; i < kBurst; ++i) ucp_worker_progress(handles_->worker);
      if (!ended(flush)) continue;
      free_request(flush);
      flush = nullptr;
      // A flush knows of what UCX's transports hold, not of what waits for them.
      if (handles_->operations.sends_pending() > 0) continue;
      flushed = flushing;
      looks = 0;
    }
    if (flush != nullptr) {
      const std::lock_guard use(mutex_);
      free_request(flush);
    }
  }
}

// A connection is not closed in UCX's way, which by TCP waits for an answer of the other side.
bool Worker::empty_out() {
  const std::lock_guard lock(mutex_);
  const Deadline end = Deadline::after(kGoodbye);
  while (handles_->operations.sends_pending() > 0) {
    if (ucp_worker_progress(handles_->worker) != 0) continue;
    if (end.expired()) return false;
    std::this_thread::yield();
  }
  ucp_request_param_t param = {};
  const std::vector<ucs_status_ptr_t> flush = {ucp_worker_flush_nbx(handles_->worker, &param)};
  const bool out = wait_for_all(handles_->worker, flush, end);
  free_request(flush[0]);
  return out;
}

}  // namespace dtensor::comm::ucx
