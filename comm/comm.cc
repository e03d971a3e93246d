#include "dtensor/comm/comm.h"

#include <utility>

#include "dtensor/base/process.h"
#include "dtensor/comm/backend.h"
#include "dtensor/comm/call.h"
#include "dtensor/comm/check.h"
#include "dtensor/comm/hash.h"
#include "dtensor/comm/lane.h"
#include "dtensor/comm/metrics.h"
#include "dtensor/comm/recorder.h"
#include "dtensor/comm/trace.h"

namespace dtensor::comm {
namespace {

Call new_call(OpKind op, const CallOptions& options) {
  Call call;
  call.op = op;
  call.label = options.label;
  call.deadline = options.deadline;
  call.stream = options.stream;
  return call;
}

template <class To, class From>
std::vector<To> copy(std::span<const From> items) {
  return std::vector<To>(items.begin(), items.end());
}

int64_t bytes_of(const Call& call) {
  int64_t bytes = 0;
  for (const ConstBuffer& b : call.in) bytes += b.size_bytes();
  for (const Buffer& b : call.out) bytes += b.size_bytes();
  for (const P2P& leg : call.legs) bytes += leg.buffer.size_bytes();
  return bytes;
}

// Whose trace it is, of a world.
Trace trace_of_world(const Backend& backend, const std::string& name) {
  Trace about;
  about.run_id = backend.run_id();
  about.generation = backend.generation();
  about.comm = name;
  about.rank = backend.rank();
  for (int r = 0; r < backend.size(); ++r) about.ranks.push_back(r);
  return about;
}

}  // namespace

Comm::Comm(std::shared_ptr<Backend> backend, std::string name)
    : Comm(backend, name, trace_of_world(*backend, name)) {}

Comm::Comm(std::shared_ptr<Backend> backend, std::string name, Trace about)
    : backend_(std::move(backend)),
      recorder_(std::make_shared<Recorder>(std::move(about))),
      lane_(std::make_shared<Lane>(backend_, name, recorder_)),
      name_(std::move(name)) {
  // The recorder alone: who tells it must not be the last to hold the backend.
  backend_->on_end([recorder = std::weak_ptr(recorder_)](std::string_view why) {
    if (const auto r = recorder.lock()) r->ended(why);
  });
}

Comm::~Comm() {
  if (!lane_->is_of_this_process()) {
    // To end it would say good-bye to the other ranks, in the name of a rank that goes on.
    dtensor::internal::keep_forever(lane_);
    dtensor::internal::keep_forever(recorder_);
    dtensor::internal::keep_forever(backend_);
    return;
  }
  lane_->close();
  recorder_->flush();
}

int Comm::rank() const { return backend_->rank(); }
int Comm::size() const { return backend_->size(); }
const std::string& Comm::name() const { return name_; }
const Capabilities& Comm::capabilities() const { return backend_->capabilities(); }
Counters Comm::counters() const { return backend_->counters(); }
Trace Comm::trace() const { return recorder_->trace(); }
std::string Comm::metrics() const {
  return metrics_text(recorder_->about().comm, rank(), recorder_->totals(), counters());
}
void Comm::set_trace_directory(std::string directory) {
  recorder_->set_directory(std::move(directory));
}
const std::string& Comm::run_id() const { return backend_->run_id(); }
int64_t Comm::generation() const { return backend_->generation(); }
Memory Comm::allocate(int64_t bytes) { return backend_->allocate(bytes); }
std::weak_ptr<BlockSource> Comm::large_blocks() const { return backend_->large_blocks(); }
void Comm::abort(std::string_view reason) noexcept {
  if (lane_->is_of_this_process()) backend_->abort(reason);
}

Work Comm::submit(Call call) {
  lane_->check_alive();
  internal::drop_unused(call, backend_->rank());
  internal::check_call(call, *backend_);
  backend_->issue(call);
  call.deadline = call.deadline.resolved();
  call.sequence = next_++;
  call.history = history_;
  call.key = key_of(call);
  history_ = internal::mix(history_, call.key.hash());
  OpInfo info{call.op, call.sequence, bytes_of(call), call.label};
  return Work(lane_->submit(std::move(call), std::move(info)));
}

Work Comm::all_reduce(const ConstBuffer& in, const Buffer& out, ReduceOp op,
                      const CallOptions& options) {
  Call call = new_call(OpKind::kAllReduce, options);
  call.in = {in};
  call.out = {out};
  call.reduce = op;
  return submit(std::move(call));
}

Work Comm::reduce(const ConstBuffer& in, const Buffer& out, int root, ReduceOp op,
                  const CallOptions& options) {
  Call call = new_call(OpKind::kReduce, options);
  call.in = {in};
  call.out = {out};
  call.reduce = op;
  call.root = root;
  return submit(std::move(call));
}

Work Comm::broadcast(const Buffer& inout, int root, const CallOptions& options) {
  Call call = new_call(OpKind::kBroadcast, options);
  call.out = {inout};
  call.root = root;
  return submit(std::move(call));
}

Work Comm::all_gather_v(const ConstBuffer& in, const Buffer& out, const Segments& segments,
                        const CallOptions& options) {
  return all_gather_v(std::span(&in, 1), std::span(&out, 1), std::span(&segments, 1), options);
}

Work Comm::all_gather_v(std::span<const ConstBuffer> in, std::span<const Buffer> out,
                        std::span<const Segments> segments, const CallOptions& options) {
  Call call = new_call(OpKind::kAllGather, options);
  call.in = copy<ConstBuffer>(in);
  call.out = copy<Buffer>(out);
  call.segments = copy<Segments>(segments);
  return submit(std::move(call));
}

Work Comm::reduce_scatter_v(const ConstBuffer& in, const Buffer& out, const Segments& segments,
                            ReduceOp op, const CallOptions& options) {
  return reduce_scatter_v(std::span(&in, 1), std::span(&out, 1), std::span(&segments, 1), op,
                          options);
}

Work Comm::reduce_scatter_v(std::span<const ConstBuffer> in, std::span<const Buffer> out,
                            std::span<const Segments> segments, ReduceOp op,
                            const CallOptions& options) {
  Call call = new_call(OpKind::kReduceScatter, options);
  call.in = copy<ConstBuffer>(in);
  call.out = copy<Buffer>(out);
  call.segments = copy<Segments>(segments);
  call.reduce = op;
  return submit(std::move(call));
}

Work Comm::all_to_all_v(const ConstBuffer& in, const Segments& to, const Buffer& out,
                        const Segments& from, const CallOptions& options) {
  Call call = new_call(OpKind::kAllToAll, options);
  call.in = {in};
  call.out = {out};
  call.segments = {to, from};
  return submit(std::move(call));
}

Work Comm::gather_v(const ConstBuffer& in, const Buffer& out, const Segments& segments, int root,
                    const CallOptions& options) {
  Call call = new_call(OpKind::kGather, options);
  call.in = {in};
  call.out = {out};
  call.segments = {segments};
  call.root = root;
  return submit(std::move(call));
}

Work Comm::scatter_v(const ConstBuffer& in, const Buffer& out, const Segments& segments, int root,
                     const CallOptions& options) {
  Call call = new_call(OpKind::kScatter, options);
  call.in = {in};
  call.out = {out};
  call.segments = {segments};
  call.root = root;
  return submit(std::move(call));
}

Work Comm::exchange(std::span<const P2P> legs, const CallOptions& options) {
  Call call = new_call(OpKind::kExchange, options);
  call.legs = copy<P2P>(legs);
  return submit(std::move(call));
}

Work Comm::barrier(const CallOptions& options) {
  return submit(new_call(OpKind::kBarrier, options));
}

void Comm::shutdown(Deadline deadline) {
  submit(new_call(OpKind::kShutdown, {.deadline = deadline})).wait();
}

std::unique_ptr<Comm> Comm::group(std::span<const int> ranks, std::string_view name) {
  lane_->check_alive();
  auto backend = backend_->group(ranks, name);
  const Trace& mine = recorder_->about();
  Trace about = trace_of_world(*backend, mine.comm + "/" + std::string(name));
  for (int& r : about.ranks) {
    r = mine.ranks[static_cast<size_t>(ranks[static_cast<size_t>(r)])];
  }
  std::unique_ptr<Comm> group(new Comm(std::move(backend), std::string(name), std::move(about)));
  group->set_trace_directory(recorder_->directory());
  return group;
}

}  // namespace dtensor::comm
