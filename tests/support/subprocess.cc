#include "dtensor/tests/support/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace dtensor::testing {
namespace {

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  return ends;
}

[[noreturn]] void become(std::vector<char*>& argv, const ProcessOptions& options, int out,
                         int err) {
  setpgid(0, 0);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  execv(argv[0], argv.data());
  _exit(127);
}

void read_some(int& fd, std::string& into) {
  std::array<char, 4096> chunk{};
  const ssize_t n = read(fd, chunk.data(), chunk.size());
  if (n > 0) {
    into.append(chunk.data(), static_cast<size_t>(n));
  } else if (n == 0 || errno != EINTR) {
    close(fd);
    fd = -1;
  }
}

}  // namespace

Subprocess::Subprocess(const std::vector<std::string>& argv, const ProcessOptions& options)
    : end_(std::chrono::steady_clock::now() + options.bound) {
  std::vector<char*> args;
  for (const auto& a : argv) args.push_back(const_cast<char*>(a.c_str()));
  args.push_back(nullptr);
  const auto out = make_pipe();
  const auto err = make_pipe();
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) become(args, options, out[1], err[1]);
  setpgid(pid_, pid_);  // also here, so that it holds before the child gets so far
  close(out[1]);
  close(err[1]);
  out_ = out[0];
  err_ = err[0];
}

Subprocess::~Subprocess() {
  kill(-pid_, SIGKILL);
  if (!reaped_) waitpid(pid_, nullptr, 0);
  if (out_ >= 0) close(out_);
  if (err_ >= 0) close(err_);
}

bool Subprocess::pump(std::chrono::milliseconds slice) {
  std::array<pollfd, 2> fds{{{out_, POLLIN, 0}, {err_, POLLIN, 0}}};
  if (out_ < 0 && err_ < 0) return false;
  poll(fds.data(), fds.size(), static_cast<int>(slice.count()));
  if (fds[0].revents != 0) read_some(out_, result_.out);
  if (fds[1].revents != 0) read_some(err_, result_.err);
  return true;
}

bool Subprocess::wait_for_output(const std::string& text) {
  while (result_.out.find(text) == std::string::npos) {
    if (std::chrono::steady_clock::now() > end_ || !pump(std::chrono::milliseconds{100}))
      return false;
  }
  return true;
}

ProcessResult Subprocess::wait() {
  while (std::chrono::steady_clock::now() < end_ && pump(std::chrono::milliseconds{100})) {
  }
  int status = 0;
  if (std::chrono::steady_clock::now() >= end_) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, &status, 0);
    result_.status = -1;
  } else {
    waitpid(pid_, &status, 0);
    result_.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  reaped_ = true;
  return result_;
}

bool Subprocess::group_is_gone() const {
  const auto gone = [&] { return kill(-pid_, 0) != 0 && errno == ESRCH; };
  const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!gone() && std::chrono::steady_clock::now() < soon) std::this_thread::yield();
  return gone();
}

ProcessResult run_process(const std::vector<std::string>& argv, const ProcessOptions& options) {
  return Subprocess(argv, options).wait();
}

}  // namespace dtensor::testing
