// DnnlThread: while it lives, oneDNN called from this thread stays on this thread. oneDNN asks
// OpenMP how many threads to use; a rank's threads are those of its ThreadPool.

#pragma once

namespace dtensor::cpu {

class DnnlThread {
 public:
  DnnlThread();
  ~DnnlThread();
  DnnlThread(const DnnlThread&) = delete;
  DnnlThread& operator=(const DnnlThread&) = delete;

 private:
  int before_;
};

}  // namespace dtensor::cpu
