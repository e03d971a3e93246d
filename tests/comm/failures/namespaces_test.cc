// A world over two network namespaces, as over two machines: ranks 0 and 1 in one, rank 2 in the
// other. The link between them goes down: nothing closes, messages are lost.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "dtensor/tests/support/subprocess.h"

namespace dtensor::testing {
namespace {

// In a user and network namespace of its own. $1: the program, $2: a directory.
constexpr const char* kSetup = R"sh(
set -e
unshare -n sleep 120 & other=$!
trap 'kill $other' EXIT
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ];
do :; done
ip link set lo up
ip link add here type veth peer name there
ip link set there netns $other
ip addr add 10.213.0.1/24 dev here
ip link set here up
nsenter -t $other -n sh -c 'ip link set lo up; ip addr add 10.213.0.2/24 dev there; ip link set there up'
)sh";

constexpr const char* kWorld = R"sh(
export DTENSOR_WORLD_SIZE=3 DTENSOR_STORE=10.213.0.1:29500 DTENSOR_COMM="gloo://?liveness=1"
DTENSOR_RANK=0 "$1" seed "$3" "$2" >"$2/0" 2>&1 & zero=$!
DTENSOR_RANK=1 "$1" seed "$3" "$2" >"$2/1" 2>&1 & one=$!
DTENSOR_RANK=2 nsenter -t $other -n "$1" seed "$3" "$2" >"$2/2" 2>&1 & two=$!
until grep -qs joined "$2/0" && grep -qs joined "$2/1" && grep -qs joined "$2/2"; do
  kill -0 $zero && kill -0 $two
done
touch "$2/go"
until grep -qs rounds "$2/0"; do kill -0 $zero; done
ip link set here down
set +e
wait $zero; echo "rank 0: $?"
wait $one; echo "rank 1: $?"
wait $two; echo "rank 2: $?"
cat "$2/0" "$2/1" "$2/2"
)sh";

TEST(Namespaces, ARankBehindALinkThatGoesDownIsNamed) {
  const std::string directory = std::string(::testing::TempDir()) + "/namespaces";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  const std::string program = std::string(std::getenv("TEST_SRCDIR")) + "/" +
                              std::getenv("TEST_WORKSPACE") + "/tests/comm/failures/faulty_rank";
  const auto run = [&](const std::string& script) {
    return run_process(
        {"/usr/bin/unshare", "-rn", "sh", "-c", script, "sh", program, directory, "cut"},
        {.environment = {{"PATH", "/usr/sbin:/usr/bin:/sbin:/bin"}},
         .bound = std::chrono::seconds(60)});
  };
  const ProcessResult setup = run(kSetup);
  if (setup.status != 0) {
    GTEST_SKIP() << "this machine makes no network namespaces for this user: " << setup.err;
  }
  const ProcessResult r = run(std::string(kSetup) + kWorld);
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  for (const char* line : {"rank 0: 0\n", "rank 1: 0\n", "rank 2: 0\n"}) {
    EXPECT_NE(r.out.find(line), std::string::npos) << r.out << r.err;
  }
  // Both ranks on this side name the one on the other; that one names one of them.
  const std::string far = "error kind=PeerLost culprit=2 proved=0";
  const size_t first = r.out.find(far);
  ASSERT_NE(first, std::string::npos) << r.out;
  EXPECT_NE(r.out.find(far, first + 1), std::string::npos) << r.out;
  EXPECT_TRUE(r.out.find("error kind=PeerLost culprit=0 proved=0") != std::string::npos ||
              r.out.find("error kind=PeerLost culprit=1 proved=0") != std::string::npos)
      << r.out;
}

}  // namespace
}  // namespace dtensor::testing
