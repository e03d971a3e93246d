#include "dtensor/tests/comm/nccl/stand_in.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "dtensor/comm/algorithms/reduction.h"

namespace dtensor::testing::stand_in {
namespace {

struct Op {
  Issued what;
  const void* send = nullptr;
  void* receive = nullptr;
  ncclRedOp_t reduce = ncclSum;
  bool done = false;
};
using OpPtr = std::shared_ptr<Op>;

// All state of the stand-in has one mutex.
struct Global {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> faults;
  bool held = false;
  bool failing = false;
  bool lingering = false;
  int devices = 1;
  int alive = 0;
  int aborted = 0;
  std::map<int, std::vector<std::vector<Issued>>> groups;  // by rank
  uint64_t next_id = 1;
  std::map<std::string, std::weak_ptr<struct World>> worlds;
};
Global& global() {
  static Global g;
  return g;
}

DType dtype_of(ncclDataType_t t) {
  switch (t) {
    case ncclFloat32:
      return DType::kFloat32;
    case ncclFloat64:
      return DType::kFloat64;
    case ncclFloat16:
      return DType::kFloat16;
    case ncclBfloat16:
      return DType::kBFloat16;
    case ncclInt8:
      return DType::kInt8;
    case ncclInt32:
      return DType::kInt32;
    case ncclInt64:
      return DType::kInt64;
    default:
      return DType::kUInt8;
  }
}
comm::ReduceOp reduce_of(ncclRedOp_t op) {
  constexpr std::array<comm::ReduceOp, 5> kOps = {comm::ReduceOp::kSum, comm::ReduceOp::kProd,
                                                  comm::ReduceOp::kMax, comm::ReduceOp::kMin,
                                                  comm::ReduceOp::kAvg};
  return kOps[static_cast<size_t>(op)];
}
size_t bytes_of(const Op& op) {
  return op.what.count * static_cast<size_t>(size_of(dtype_of(op.what.type)));
}
bool is_pairwise(const Op& op) { return op.what.name == "Send" || op.what.name == "Recv"; }

// The ranks of one communicator. Guarded by the global mutex.
struct World {
  explicit World(int size) : size(size), next(static_cast<size_t>(size), 0) {}
  const int size;
  int joined = 0;
  std::vector<int64_t> next;                      // of collectives, by rank
  std::map<int64_t, std::vector<OpPtr>> waiting;  // collectives, by number and rank
  std::map<std::pair<int, int>, std::deque<OpPtr>> sends;
  std::map<std::pair<int, int>, std::deque<OpPtr>> receives;

  static void fault(const std::string& what) { global().faults.push_back(what); }

  void post(int rank, const OpPtr& op) {
    if (op->what.count == 0) fault(op->what.name + " of nothing");
    if (!is_pairwise(*op)) {
      auto& all = waiting[next[static_cast<size_t>(rank)]++];
      all.resize(static_cast<size_t>(size));
      all[static_cast<size_t>(rank)] = op;
      return;
    }
    const int peer = op->what.peer;
    if (peer == rank) fault("a send to oneself");
    if (op->what.name == "Send") {
      sends[{rank, peer}].push_back(op);
    } else {
      receives[{peer, rank}].push_back(op);
    }
  }

  // Does what all of whose ranks are there.
  void advance() {
    for (auto it = waiting.begin(); it != waiting.end();) {
      bool complete = true;
      for (const auto& op : it->second) complete = complete && op != nullptr;
      if (!complete) break;
      run(it->second);
      it = waiting.erase(it);
    }
    for (auto& [pair, queue] : sends) {
      auto& other = receives[pair];
      while (!queue.empty() && !other.empty()) {
        Op& s = *queue.front();
        Op& r = *other.front();
        if (s.what.count != r.what.count || s.what.type != r.what.type) {
          fault("a send meets a receive of another size or type");
        } else {
          std::memcpy(r.receive, s.send, bytes_of(s));
        }
        s.done = r.done = true;
        queue.pop_front();
        other.pop_front();
      }
    }
  }

  void run(const std::vector<OpPtr>& ops) {
    const Op& first = *ops[0];
    for (const auto& op : ops) {
      if (op->what != first.what || op->reduce != first.reduce) {
        fault(first.what.name + " on one rank, " + op->what.name + " or another count on another");
        return;  // as NCCL: nobody comes back
      }
    }
    const size_t bytes = bytes_of(first);
    const std::string& name = first.what.name;
    if (name == "Broadcast") {
      const void* source = ops[static_cast<size_t>(first.what.peer)]->send;
      for (const auto& op : ops) std::memmove(op->receive, source, bytes);
    } else if (name == "AllGather") {
      std::vector<std::byte> all(bytes * ops.size());
      for (size_t r = 0; r < ops.size(); ++r) std::memcpy(&all[r * bytes], ops[r]->send, bytes);
      for (const auto& op : ops) std::memcpy(op->receive, all.data(), all.size());
    } else {
      reduce(ops, bytes, name);
    }
    for (const auto& op : ops) op->done = true;
  }

  static void reduce(const std::vector<OpPtr>& ops, size_t bytes, const std::string& name) {
    const bool scatters = name == "ReduceScatter";
    const size_t parts = scatters ? ops.size() : 1;
    std::vector<std::byte> sum(bytes * parts);
    std::vector<const void*> operands;
    for (const auto& op : ops) operands.push_back(op->send);
    const Op& first = *ops[0];
    comm::reduce_into(sum.data(), operands, static_cast<int64_t>(first.what.count * parts),
                      dtype_of(first.what.type), reduce_of(first.reduce));
    for (size_t r = 0; r < ops.size(); ++r) {
      if (name == "Reduce" && static_cast<int>(r) != first.what.peer) continue;
      std::memcpy(ops[r]->receive, sum.data() + (scatters ? r * bytes : 0), bytes);
    }
  }

  void withdraw(const OpPtr& op) {
    for (auto& [number, all] : waiting) {
      for (auto& o : all) o = o == op ? nullptr : o;
    }
    for (auto* queues : {&sends, &receives}) {
      for (auto& [pair, queue] : *queues) std::erase(queue, op);
    }
  }
};

}  // namespace
}  // namespace dtensor::testing::stand_in

namespace si = dtensor::testing::stand_in;

// The opaque types of both libraries.
struct ncclComm {
  std::shared_ptr<si::World> world;
  int rank = 0;
  bool aborted = false;
  bool finishing = false;
  int in_progress = 0;  // questions that are answered so
};

struct CUstream_st {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool stop = false;
  std::thread thread{[this] {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stop || !queue.empty(); });
      if (queue.empty()) return;
      const auto work = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }};
  void add(std::function<void()> work) {
    const std::lock_guard lock(mutex);
    queue.push_back(std::move(work));
    changed.notify_all();
  }
};

struct CUevent_st {
  struct Mark {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    void set() {
      const std::lock_guard lock(mutex);
      done = true;
      changed.notify_all();
    }
    void wait() {
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return done; });
    }
  };
  std::shared_ptr<Mark> mark;
};

namespace dtensor::testing::stand_in {
namespace {

struct Pending {
  ncclComm_t comm;
  cudaStream_t stream;
  OpPtr op;
};
thread_local int depth = 0;
thread_local std::vector<Pending> group;

void put_on_stream(cudaStream_t stream, std::function<void()> work) {
  if (stream == nullptr) return work();
  stream->add(std::move(work));
}

// What a kernel does: waits for the others, until it is aborted.
void run_group(const std::shared_ptr<World>& world, ncclComm_t comm,
               const std::vector<OpPtr>& ops) {
  Global& g = global();
  std::unique_lock lock(g.mutex);
  for (const auto& op : ops) world->post(comm->rank, op);
  const auto all_done = [&] {
    if (comm->aborted) return true;
    if (!g.held) world->advance();
    bool done = true;
    for (const auto& op : ops) done = done && op->done;
    return done;
  };
  while (!all_done()) {
    g.changed.notify_all();
    g.changed.wait(lock);
  }
  for (const auto& op : ops) {
    if (!op->done) world->withdraw(op);
  }
  g.changed.notify_all();
}

ncclResult_t end_group() {
  if (--depth > 0) return ncclSuccess;
  std::map<ncclComm_t, std::pair<cudaStream_t, std::vector<OpPtr>>> by_comm;
  for (const Pending& p : group) {
    by_comm[p.comm].first = p.stream;
    by_comm[p.comm].second.push_back(p.op);
  }
  group.clear();
  for (auto& [comm, work] : by_comm) {
    {
      const std::lock_guard lock(global().mutex);
      if (comm->in_progress > 0) World::fault("a call before the last one was done");
      comm->in_progress = 2;
      auto& issued = global().groups[comm->rank].emplace_back();
      for (const auto& op : work.second) issued.push_back(op->what);
    }
    put_on_stream(work.first, [comm = comm, world = comm->world, ops = work.second] {
      run_group(world, comm, ops);
    });
  }
  return by_comm.empty() ? ncclSuccess : ncclInProgress;
}

ncclResult_t add(Issued what, const void* send, void* receive, ncclRedOp_t op, ncclComm_t comm,
                 cudaStream_t stream) {
  ++depth;
  auto item = std::make_shared<Op>();
  item->what = std::move(what);
  item->send = send;
  item->receive = receive;
  item->reduce = op;
  group.push_back({comm, stream, std::move(item)});
  return end_group();
}

ncclResult_t let_go(ncclComm_t comm, bool abort) {
  Global& g = global();
  const std::lock_guard lock(g.mutex);
  comm->aborted = true;  // its kernels end
  --g.alive;
  if (abort) ++g.aborted;
  g.changed.notify_all();
  // The handle itself stays: a kernel may still look at it. Tests are short.
  static std::vector<std::unique_ptr<ncclComm>> gone;
  gone.emplace_back(comm);
  return ncclSuccess;
}

}  // namespace

std::vector<std::vector<Issued>> take_groups(int rank) {
  const std::lock_guard lock(global().mutex);
  return std::exchange(global().groups[rank], {});
}

std::vector<std::string> take_faults() {
  const std::lock_guard lock(global().mutex);
  return std::exchange(global().faults, {});
}

void run_on(cudaStream_t stream, std::function<void()> work) {
  put_on_stream(stream, std::move(work));
}

void hold(bool held) {
  const std::lock_guard lock(global().mutex);
  global().held = held;
  global().changed.notify_all();
}

void fail(bool failing) {
  const std::lock_guard lock(global().mutex);
  global().failing = failing;
}

void linger(bool lingering) {
  const std::lock_guard lock(global().mutex);
  global().lingering = lingering;
}

void set_devices(int count) {
  const std::lock_guard lock(global().mutex);
  global().devices = count;
}

int alive() {
  const std::lock_guard lock(global().mutex);
  return global().alive;
}

int aborted() {
  const std::lock_guard lock(global().mutex);
  return global().aborted;
}

}  // namespace dtensor::testing::stand_in

extern "C" {

const char* ncclGetErrorString(ncclResult_t) { return "an error of the stand-in"; }
ncclResult_t ncclGetVersion(int* version) {
  *version = 10203;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(si::global().mutex);
  std::memset(id, 0, sizeof(*id));
  const uint64_t number = si::global().next_id++;
  std::memcpy(id->internal, &number, sizeof(number));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config == nullptr || config->blocking != 0) return ncclInvalidArgument;
  const std::lock_guard lock(si::global().mutex);
  auto& slot = si::global().worlds[std::string(id.internal, sizeof(id.internal))];
  auto world = slot.lock();
  if (world == nullptr) slot = world = std::make_shared<si::World>(size);
  if (world->size != size) return ncclInvalidArgument;
  ++world->joined;
  ++si::global().alive;
  *comm = new ncclComm{world, rank};
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard lock(si::global().mutex);
  *state = ncclSuccess;
  if (comm->in_progress > 0) --comm->in_progress;
  if (comm->in_progress > 0 || comm->world->joined < comm->world->size) *state = ncclInProgress;
  if (comm->finishing && si::global().lingering) *state = ncclInProgress;
  if (si::global().failing) *state = ncclRemoteError;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::lock_guard lock(si::global().mutex);
  comm->finishing = true;
  return si::global().lingering ? ncclInProgress : ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return si::let_go(comm, false); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return si::let_go(comm, true); }

ncclResult_t ncclGroupStart() {
  ++si::depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() { return si::end_group(); }

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return si::add({"AllReduce", count, type}, send, receive, op, comm, stream);
}
ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return si::add({"Reduce", count, type, root}, send, receive, op, comm, stream);
}
ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return si::add({"Broadcast", count, type, root}, send, receive, ncclSum, comm, stream);
}
ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return si::add({"AllGather", count, type}, send, receive, ncclSum, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return si::add({"ReduceScatter", count, type}, send, receive, op, comm, stream);
}
ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return si::add({"Send", count, type, peer}, send, nullptr, ncclSum, comm, stream);
}
ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return si::add({"Recv", count, type, peer}, nullptr, receive, ncclSum, comm, stream);
}

const char* cudaGetErrorString(cudaError_t) { return "an error of the stand-in"; }
cudaError_t cudaGetDeviceCount(int* count) {
  const std::lock_guard lock(si::global().mutex);
  *count = si::global().devices;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  const std::lock_guard lock(si::global().mutex);
  return device >= 0 && device < si::global().devices ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const std::lock_guard lock(stream->mutex);
    stream->stop = true;
    stream->changed.notify_all();
  }
  stream->thread.join();
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  si::put_on_stream(stream, [mark = event->mark] { mark->wait(); });
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->mark = std::make_shared<CUevent_st::Mark>();
  si::put_on_stream(stream, [mark = event->mark] { mark->set(); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(event->mark->mutex);
  return event->mark->done ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  si::put_on_stream(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

}  // extern "C"
