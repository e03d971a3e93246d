#include "dtensor/comm/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "dtensor/base/deadline.h"
#include "dtensor/base/error.h"
#include "dtensor/comm/socket.h"

namespace dtensor::comm {
namespace {

using internal::Fd;
constexpr int kPollMilliseconds = 20;
constexpr size_t kLongestLine = 1 << 16;
constexpr int kTimeoutStatus = 124;

// The directory of the world's file store.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    const char* base = getenv("TMPDIR");
    path_ = fmt::format("{}/dtensor-run.XXXXXX", base != nullptr && *base ? base : "/tmp");
    if (mkdtemp(path_.data()) == nullptr) {
      throw Error(fmt::format("run: cannot make {}: {}", path_, strerror(errno)));
    }
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Blocks the signals that are forwarded, in this thread, and makes them readable.
class Signals {
 public:
  Signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int s : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, s);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
    fd_.reset(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  }
  ~Signals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  const sigset_t& before() const { return before_; }
  int fd() const { return fd_.get(); }
  // The next signal, 0 where none waits.
  int take() {
    signalfd_siginfo info = {};
    return read(fd_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo)
                                                                : 0;
  }

 private:
  sigset_t before_ = {};
  Fd fd_;
};

// One output of one rank, cut into lines.
struct Pipe {
  Fd fd;
  int to = STDOUT_FILENO;
  std::string prefix;
  std::string line;

  void emit(std::string_view text) const {
    const std::string whole = fmt::format("{}{}\n", prefix, text);
    std::string_view rest = whole;
    while (!rest.empty()) {
      const ssize_t n = write(to, rest.data(), rest.size());
      if (n < 0 && errno != EINTR) return;  // nobody reads us; the ranks go on
      if (n > 0) rest.remove_prefix(static_cast<size_t>(n));
    }
  }

  // Passes on what is there; closes at the end of the stream.
  void pump() {
    char block[16384];
    ssize_t n = 0;
    while (fd && (n = read(fd.get(), block, sizeof(block))) != 0) {
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n < 0) break;
      line.append(block, static_cast<size_t>(n));
      size_t begin = 0;
      for (size_t end = line.find('\n'); end != std::string::npos; end = line.find('\n', begin)) {
        emit(std::string_view(line).substr(begin, end - begin));
        begin = end + 1;
      }
      line.erase(0, begin);
      if (line.size() > kLongestLine) flush();
    }
    flush();
    fd.reset();
  }

  void flush() {
    if (!line.empty()) emit(line);
    line.clear();
  }
};

struct Process {
  pid_t pid = -1;
  bool running = false;
  int status = 0;
};

// What a child needs between fork and exec, made before: after fork only async-signal-safe calls
// are allowed.
struct ChildPlan {
  std::vector<char*> argv;
  std::vector<char*> envp;
  std::array<int, 2> out = {-1, -1};  // its stdout and stderr, -1: the launcher's
  const sigset_t* mask = nullptr;
  pid_t launcher = 0;
};

[[noreturn]] void become(const ChildPlan& plan) {
  setpgid(0, 0);  // so that what the program starts can be ended with it
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.launcher) _exit(127);  // it died before prctl
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  if (plan.out[0] >= 0) dup2(plan.out[0], STDOUT_FILENO);
  if (plan.out[1] >= 0) dup2(plan.out[1], STDERR_FILENO);
  pthread_sigmask(SIG_SETMASK, plan.mask, nullptr);
  execvpe(plan.argv[0], plan.argv.data(), plan.envp.data());
  constexpr char kMessage[] = "run: the program cannot be started\n";
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(127);
}

std::vector<std::string> environment_of(int rank, const LaunchOptions& options,
                                        const std::string& store) {
  std::vector<std::string> out;
  for (char** v = environ; *v != nullptr; ++v) {
    const std::string_view name = *v;
    bool ours = false;
    for (const char* own : {"DTENSOR_RANK=", "DTENSOR_LOCAL_RANK=", "DTENSOR_WORLD_SIZE=",
                            "DTENSOR_COMM=", "DTENSOR_STORE="}) {
      ours = ours || name.substr(0, strlen(own)) == own;
    }
    if (!ours) out.emplace_back(name);
  }
  out.push_back(fmt::format("DTENSOR_RANK={}", rank));
  out.push_back(fmt::format("DTENSOR_LOCAL_RANK={}", rank));
  out.push_back(fmt::format("DTENSOR_WORLD_SIZE={}", options.size));
  out.push_back("DTENSOR_COMM=" + options.comm);
  out.push_back("DTENSOR_STORE=file:" + store);
  return out;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& s : strings) out.push_back(s.data());
  out.push_back(nullptr);
  return out;
}

class World {
 public:
  explicit World(const LaunchOptions& options) : options_(options) {
    if (options.timeout) deadline_ = Deadline::after(*options.timeout);
    processes_.resize(static_cast<size_t>(options.size));
  }
  ~World() {
    signal_all(SIGKILL);
    for (Process& p : processes_) {
      if (p.running) waitpid(p.pid, nullptr, 0);
    }
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int run() {
    for (int r = 0; r < options_.size; ++r) start(r);
    while (any_running()) {
      wait_a_little();
      if (const int s = signals_.take(); s != 0) end(128 + s, s);
      for (Process& p : processes_) reap(p);
      if (options_.timeout && deadline_.expired()) end(kTimeoutStatus, SIGTERM);
      if (status_ != 0 && !ending_ && term_at_.expired()) end(status_, SIGTERM);
      if (ending_ && kill_at_.expired()) signal_all(SIGKILL);
    }
    for (Pipe& p : pipes_) {
      p.pump();
      p.flush();
    }
    return status_;
  }

 private:
  void start(int rank) {
    std::vector<std::string> argv = options_.argv;
    std::vector<std::string> envp = environment_of(rank, options_, directory_.path());
    ChildPlan plan{pointers_to(argv), pointers_to(envp)};
    plan.mask = &signals_.before();
    plan.launcher = getpid();
    std::array<Fd, 2> ends;
    if (options_.output == LaunchOutput::kPrefixed) {
      for (const int i : {0, 1}) ends[i] = open_pipe(rank, i == 0 ? STDOUT_FILENO : STDERR_FILENO);
      plan.out = {ends[0].get(), ends[1].get()};
    }
    const pid_t pid = fork();
    if (pid == 0) become(plan);
    if (pid < 0) throw Error(fmt::format("run: cannot start rank {}: {}", rank, strerror(errno)));
    setpgid(pid, pid);  // the child does too; whoever comes first
    Process& p = processes_[static_cast<size_t>(rank)];
    p.pid = pid;
    p.running = true;
  }

  Fd open_pipe(int rank, int to) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) throw Error(fmt::format("run: pipe: {}", strerror(errno)));
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    pipes_.emplace_back();
    pipes_.back().fd.reset(fds[0]);
    pipes_.back().to = to;
    pipes_.back().prefix = fmt::format("[{}] ", rank);
    return Fd(fds[1]);
  }

  // Until output, a signal, or the time to look after the processes again.
  void wait_a_little() {
    std::vector<pollfd> polled = {{signals_.fd(), POLLIN, 0}};
    for (const Pipe& p : pipes_) polled.push_back({p.fd.get(), POLLIN, 0});  // -1 is passed over
    poll(polled.data(), polled.size(), kPollMilliseconds);
    for (size_t i = 0; i < pipes_.size(); ++i) {
      if (polled[i + 1].revents != 0) pipes_[i].pump();
    }
  }

  void reap(Process& p) {
    siginfo_t info = {};
    if (!p.running ||
        waitid(P_PID, static_cast<id_t>(p.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
      return;
    }
    // Not reaped yet, so that its group's number is still its own: ends what it left behind.
    kill(-p.pid, SIGKILL);
    int status = 0;
    waitpid(p.pid, &status, 0);
    p.running = false;
    p.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (p.status != 0 && status_ == 0) {
      status_ = p.status;
      term_at_ = Deadline::after(options_.settle);
    }
  }

  // The first reason to end counts.
  void end(int status, int signal) {
    if (!ending_) {
      ending_ = true;
      if (status_ == 0) status_ = status;
      kill_at_ = Deadline::after(options_.grace);
      signal_all(signal);
    }
  }

  void signal_all(int signal) {
    for (const Process& p : processes_) {
      if (!p.running) continue;
      kill(-p.pid, signal);
      if (signal != SIGKILL) kill(-p.pid, SIGCONT);  // a stopped one must be able to end
    }
  }

  bool any_running() const {
    for (const Process& p : processes_) {
      if (p.running) return true;
    }
    return false;
  }

  const LaunchOptions& options_;
  TemporaryDirectory directory_;
  Signals signals_;
  std::vector<Process> processes_;
  std::vector<Pipe> pipes_;
  Deadline deadline_;
  bool ending_ = false;
  int status_ = 0;
  Deadline term_at_;
  Deadline kill_at_;
};

}  // namespace

int launch_local(const LaunchOptions& options) {
  if (options.argv.empty() || options.argv[0].empty()) {
    throw ArgumentError("run: no program was named; write run -n 4 -- PROGRAM ARGS");
  }
  if (options.size < 1) {
    throw ArgumentError(
        fmt::format("run: a world of {} ranks; at least 1 is needed", options.size));
  }
  return World(options).run();
}

}  // namespace dtensor::comm
