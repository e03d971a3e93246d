#include "dtensor/checkpoint/save.h"

#include <fmt/core.h>

#include <cerrno>
#include <exception>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/base/logging.h"
#include "dtensor/checkpoint/attempt.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/checkpoint/file_system.h"
#include "dtensor/checkpoint/manifest.h"
#include "dtensor/checkpoint/record.h"
#include "dtensor/checkpoint/retention.h"
#include "dtensor/checkpoint/save_plan.h"
#include "dtensor/checkpoint/save_queue.h"
#include "dtensor/checkpoint/stage.h"
#include "dtensor/checkpoint/world.h"

namespace dtensor::checkpoint {
namespace {

// One rank's part of one attempt, ready to be written by any thread.
struct Job {
  std::string run_dir;
  Attempt attempt;
  SaveOptions options;
  std::shared_ptr<FileSystem> system;
  std::shared_ptr<KnownComplete> known;
  SavePlan plan;
};

// The Context's slot. The saves of a Context clear away one after the other.
struct Known {
  std::shared_ptr<KnownComplete> attempts = std::make_shared<KnownComplete>();
};

std::shared_ptr<Job> planned(const std::string& run_dir, int64_t step, const State& state,
                             const SaveOptions& options) {
  // Before anything can throw: a call that fails on one rank counts there too, and the ids of the
  // next one agree.
  const World world = World::of(state);
  const std::string id = world.next_attempt_id();
  const NamedState named = named_state(state);
  World::of_tensors(named);  // refuses two root Comms
  check_for_saving(named);
  if (step < 0 || run_dir.empty() || options.file_bytes <= 0) {
    throw ArgumentError(fmt::format(
        "checkpoint::save(\"{}\", {}): give a directory, a step of 0 or more, and files of more "
        "than 0 bytes (found {})",
        run_dir, step, options.file_bytes));
  }
  options.retention.check();
  Record about;
  about.id = id;
  about.step = step;
  about.rank = world.rank();
  about.world = world.size();
  auto job = std::make_shared<Job>();
  job->run_dir = run_dir;
  job->attempt = *attempt_of(run_dir, attempt_name(step, id));
  job->options = options;
  job->system = current_file_system();
  job->known = Context::current().slot<Known>().attempts;
  job->plan = plan_save(named, std::move(about),
                        {.file_bytes = options.file_bytes, .replicas = options.replicas});
  return job;
}

RecordFile write_data(const PlannedFile& planned, NewFile& file) {
  file.append(bytes_of(planned.header));
  for (const Tensor& part : planned.parts) {
    const Tensor whole = part.contiguous();
    file.append(
        {static_cast<const std::byte*>(whole.raw()), static_cast<size_t>(whole.size_bytes())});
  }
  file.sync();
  return {planned.name, file.crcs().bytes(), file.crcs().crcs()};
}

// Data files, fsync, record to a temporary name, fsync, rename, fsync of the directory and of its
// parent. The record is what counts: where it is, everything that it speaks of is on the disk.
void write_part(Job& job) {
  const std::string& dir = job.attempt.path;
  make_directories(*job.system, job.run_dir);
  if (const int error = job.system->make_directory(dir); error != 0 && error != EEXIST) {
    throw CheckpointError(fmt::format("cannot make the directory {}: {}", dir,
                                      std::generic_category().message(error)));
  }
  std::vector<std::unique_ptr<NewFile>> data;
  for (PlannedFile& file : job.plan.files) {
    data.push_back(std::make_unique<NewFile>(dir + "/" + file.name, job.system));
    job.plan.record.files.push_back(write_data(file, *data.back()));
    file.parts.clear();
  }
  AtomicFile record(dir + "/" + record_name(job.plan.record.rank), job.system);
  record.append(bytes_of(to_text(job.plan.record)));
  record.prepare();
  record.rename(Existing::kRefuse);
  for (const auto& file : data) file->keep();
  sync_directory(*job.system, dir);
  sync_directory(*job.system, job.run_dir);
}

// What is done besides must not make a save fail that is on the disk.
void clean_up(const Job& job) {
  try {
    if (job.options.manifest == Manifest::kByTheLast) write_manifest(job.attempt, job.system);
    if (job.plan.record.rank == 0 && !job.options.retention.keeps_all()) {
      clear_old(job.run_dir, job.options.retention,
                {.id = job.attempt.id, .system = job.system, .known = job.known.get()});
    }
  } catch (const std::exception& e) {
    log(LogLevel::kWarn, fmt::format("checkpoint: after the save: {}", e.what()));
  }
}

SaveQueue& queue() { return Context::current().slot<SaveQueue>(); }

}  // namespace

void save(const std::string& run_dir, int64_t step, const State& state,
          const SaveOptions& options) {
  const auto job = planned(run_dir, step, state, options);
  wait_for_save();
  write_part(*job);
  clean_up(*job);
}

PendingSave save_async(const std::string& run_dir, int64_t step, const State& state,
                       const SaveOptions& options) {
  const auto job = planned(run_dir, step, state, options);
  if (options.when_busy == WhenBusy::kRefuse) {
    queue().wait_until_at_most(Stage::kBuffers);  // waits for none
    if (queue().under_way() == Stage::kBuffers) return {};
  }
  queue().wait_until_at_most(Stage::kBuffers - 1);
  Context::current().slot<Stage>().take(job->plan);
  return queue().push(job->attempt.path, [job] {
    write_part(*job);
    clean_up(*job);
  });
}

void wait_for_save() { queue().wait_until_at_most(0); }

void release_save_buffers() {
  wait_for_save();
  Context::current().slot<Stage>().release();
}

}  // namespace dtensor::checkpoint
