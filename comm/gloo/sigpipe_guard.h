// SigpipeGuard: Gloo writes to sockets without MSG_NOSIGNAL, so a peer's death would end this
// process by SIGPIPE. In a guard's scope this thread does not get that signal; threads made in it
// inherit this. The process's own handling of SIGPIPE is not changed.

#pragma once

#include <signal.h>

namespace dtensor::comm::gloo {

class SigpipeGuard {
 public:
  SigpipeGuard() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~SigpipeGuard() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    // One that came meanwhile would be delivered on unblocking.
    sigset_t pending;
    if (sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1) {
      const timespec now = {0, 0};
      sigtimedwait(&pipe_, nullptr, &now);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
};

}  // namespace dtensor::comm::gloo
