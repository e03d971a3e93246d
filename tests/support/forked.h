// A process that is forked from the test and starts no program of its own.

#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace dtensor::testing {

// Runs f there and gives what it returned; negative is the signal that ended it, SIGALRM where it
// hung. Under a sanitizer, too, it leaves by _exit: what the test would do at its end it does not.
inline int status_of_fork(const std::function<int()>& f) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(30);
    _exit(f());
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace dtensor::testing
