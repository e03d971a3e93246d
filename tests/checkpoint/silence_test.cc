// Saving talks to nobody: no system call of the network, and no call of the Comm.
// KempnerForge#104, KempnerForge#49, pytorch#163548

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <string>
#include <vector>

#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/comm/comm.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/silent_rank.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor::checkpoint {
namespace {

using testing::as_silent_rank;
using testing::Bag;
using testing::kSilentRun;
using testing::TemporaryDirectory;

void save_as(int rank, int size, const std::string& run) {
  as_silent_rank(rank, size, kSilentRun, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", size}});
    Bag bag;
    const Layout cut(mesh.layout(), {5, 300}, {Shard(0)});
    bag.add("w", DTensor(Tensor::full(cut.box_of(rank).size, 1), cut, mesh));
    bag.add("r", DTensor(Tensor::full({200, 100}, 2),
                         Layout(mesh.layout(), {200, 100}, {Replicate()}), mesh));
    const SaveOptions options{.retention = {.keep_last = 1}, .manifest = Manifest::kByTheLast};
    save(run, 1, {.model = bag}, options);
    save_async(run, 2, {.model = bag}, options);
    save_async(run, 3, {.model = bag}, options);
    wait_for_save();
    latest(run);
  });
}

TEST(Silence, SavingMakesNoCallOfTheComm) {
  const TemporaryDirectory run;
  // One after the other: no rank waits for another one.
  for (int rank = 0; rank < 3; ++rank) save_as(rank, 3, run.path());
  EXPECT_EQ(latest(run.path()).step, 3);
}

// From now on a system call that opens or uses a socket ends the process; threads inherit it.
bool forbid_network() {
  const auto load_word = [](size_t offset) {
    return sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<uint32_t>(offset)};
  };
  std::vector<sock_filter> filter = {load_word(offsetof(seccomp_data, nr))};
  for (const int call : {SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_listen, SYS_accept,
                         SYS_accept4, SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg,
                         SYS_sendmmsg, SYS_recvmmsg, SYS_shutdown}) {
    filter.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 1, static_cast<uint32_t>(call)});
    filter.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS});
  }
  filter.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW});
  sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

constexpr int kNoFilter = 77;

template <class F>
int status_of_child(const F& f) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (!forbid_network()) _exit(kNoFilter);
    f();
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

TEST(Silence, SavingMakesNoSystemCallOfTheNetwork) {
  const TemporaryDirectory run;
  const int control = status_of_child([] { (void)socket(AF_UNIX, SOCK_STREAM, 0); });
  if (WIFEXITED(control)) GTEST_SKIP() << "this machine does not take a filter of system calls";
  EXPECT_TRUE(WIFSIGNALED(control));
  for (int rank = 0; rank < 2; ++rank) {
    const int status = status_of_child([&] { save_as(rank, 2, run.path()); });
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_EQ(latest(run.path()).step, 3);
}

}  // namespace
}  // namespace dtensor::checkpoint
