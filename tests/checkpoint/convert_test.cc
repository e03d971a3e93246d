#include "dtensor/checkpoint/convert.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/file_system.h"
#include "dtensor/checkpoint/open_stored.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/recording_file_system.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor::checkpoint {
namespace {

using testing::Bag;
using testing::FileCall;
using testing::RecordingFileSystem;
using testing::TemporaryDirectory;

// A record that has its name speaks of data that stays, whatever fails after the rename.
TEST(WriteAttempt, TheDataOfARecordThatIsThereStays) {
  const TemporaryDirectory run;
  Bag bag;
  const auto w = bag.add("w", DTensor(Tensor::arange(3)));
  save(run / "from", 5, {.model = bag});
  const Contents from = open_stored(run / "from");
  {
    const ScopedSlot<CurrentFileSystem> slot(
        {std::make_shared<RecordingFileSystem>([](const FileCall& call) {
          const bool of_attempt = call.path.find("/step-") != std::string::npos;
          return call.kind == FileCall::Kind::kSyncDirectory && of_attempt ? EIO : 0;
        })});
    const auto whole = [](const Shape& shape) {
      return Layout::replicated(MeshLayout({{"x", 1}}), shape);
    };
    EXPECT_THROW(write_attempt(from, run / "to", 5, 1, whole), CheckpointError);
  }
  w.value().local_tensor().data<float>()[2] = 7;
  EXPECT_EQ(load(run / "to", {.model = bag}), 5);
  EXPECT_EQ(w.value().local_tensor().data<float>()[2], 2);
}

}  // namespace
}  // namespace dtensor::checkpoint
