// A child process that is killed at one of its system calls, those of all its threads counted.

#pragma once

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

namespace dtensor::testing {

enum class Child { kEnded, kKilled, kNotTraced };

// Kills it, and takes the ends of all its threads.
inline void kill_traced(pid_t pid) {
  kill(pid, SIGKILL);
  int status = 0;
  pid_t who = 0;
  while ((who = waitpid(-1, &status, __WALL)) > 0) {
    if (who == pid && !WIFSTOPPED(status)) return;
  }
}

// Runs f in a child that is killed at the n-th stop at the entry or exit of a system call; 0 kills
// it before the first. The caller has no other children meanwhile.
inline Child killed_at(int n, const std::function<void()>& f) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
    (void)raise(SIGSTOP);
    f();
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  if (!WIFSTOPPED(status)) return Child::kNotTraced;
  ptrace(PTRACE_SETOPTIONS, pid, nullptr,
         PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  int stops = 0;
  pid_t who = pid;
  while (stops < n) {
    ptrace(PTRACE_SYSCALL, who, nullptr, nullptr);
    do {
      who = waitpid(-1, &status, __WALL);
      if (who == pid && !WIFSTOPPED(status)) return Child::kEnded;
    } while (!WIFSTOPPED(status));  // a thread's end
    constexpr int kAtSystemCall = SIGTRAP | 0x80;
    stops += WSTOPSIG(status) == kAtSystemCall ? 1 : 0;
  }
  kill_traced(pid);
  return Child::kKilled;
}

}  // namespace dtensor::testing
