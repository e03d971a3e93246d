// The `dtensor` program: dispatches to its commands. To add one, write its file and add it here.

#include <array>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/tools/checkpoint.h"
#include "dtensor/tools/comm_bench.h"
#include "dtensor/tools/comm_trace.h"
#include "dtensor/tools/command.h"
#include "dtensor/tools/doctor.h"
#include "dtensor/tools/layout_command.h"
#include "dtensor/tools/plan_command.h"
#include "dtensor/tools/rules_command.h"
#include "dtensor/tools/run.h"

namespace dtensor::tools {
namespace {

constexpr std::array kCommands = {
    Command{"layout", "--shape 11,4 \"dp=2,tp=2:S(0),R\" [--rank R] [--json]",
            "what each rank holds of a tensor", layout_command},
    Command{"plan",
            "--shape 11,4 [--dtype f32] --from \"dp=2,tp=2:S(0),R\" --to \"x=3:S(1)\"\n"
            "          [--wire-dtype bf16] [--links dp=25:5,tp=300:2,between=1:20] [--rank R] "
            "[--json]\n"
            "          [--explain]",
            "how a tensor goes from one layout to another, and its bytes; --explain draws it",
            plan_command},
    Command{"rules", "[OP] [--json] [--markdown]",
            "the placements that ops take, proved in tests/ops", rules_command},
    Command{
        "checkpoint", "ls | verify | merge | reshard | import | export | diff PATH ... [--json]",
        "what a checkpoint holds, whether it is whole, and what it becomes", checkpoint_command},
    Command{"comm-bench",
            "[--comm URL] [--ops all_reduce,all_gather] [--bytes 1k:64m] [--memory heap] [--json]\n"
            "          [--tune] [--capabilities]",
            "latency and bus bandwidth of a backend, between the ranks of `dtensor run`",
            comm_bench_command},
    Command{"comm-trace", "PATH ... [--json]",
            "who waits for whom, from the traces of DTENSOR_TRACE_DIR", comm_trace_command},
    Command{"run", "-n 4 [--comm gloo] -- PROGRAM ARGS", "starts a program as local ranks",
            run_command},
    Command{"doctor", "[--peers host:port,...] [--json]",
            "which backends, devices, addresses and peers work here, and why one does not",
            doctor_command},
};

void print_texts(std::ostream& out) {
  out << "\nLayout text: MESH:PLACEMENTS[;order=DIM:MESH DIMS][;unit=DIM:MESH DIM:U]"
         "[;weights=MESH DIM:W,...]\n"
         "  dp=2,tp=2@3,1,0,2:S(0),S(0);order=0:tp,dp;unit=0:tp:32;weights=tp:2,1\n"
         "Links: MESH DIM=GB/s:MICROSECONDS,...; with them the plan is the one that takes least "
         "time.\n"
         "Exit status: 0 what was asked is so, 1 a finding, 2 wrong usage.\n";
}

void print_usage(std::ostream& out) {
  out << "usage: dtensor COMMAND ...\n\n";
  for (const Command& command : kCommands) {
    out << "  dtensor " << command.name << " " << command.usage << "\n      " << command.summary
        << "\n";
  }
  print_texts(out);
}

void print_usage(const Command& command, std::ostream& out) {
  out << "usage: dtensor " << command.name << " " << command.usage << "\n";
}

int run(const Command& command, Arguments arguments) {
  try {
    return command.run(arguments, std::cout, std::cerr);
  } catch (const HelpRequest&) {
    print_usage(command, std::cout);
    std::cout << "      " << command.summary << "\n";
    print_texts(std::cout);
    return 0;
  } catch (const UsageError& e) {
    std::cerr << "dtensor " << command.name << ": " << e.what() << "\n";
    print_usage(command, std::cerr);
    return 2;
  } catch (const std::exception& e) {
    std::cerr << "dtensor " << command.name << ": " << e.what() << "\n";
    return 1;
  }
}

int main_of(Arguments arguments) {
  if (arguments.empty()) {
    print_usage(std::cerr);
    return 2;
  }
  if (arguments[0] == "--help" || arguments[0] == "help") {
    print_usage(std::cout);
    return 0;
  }
  for (const Command& command : kCommands) {
    if (command.name == arguments[0]) {
      return run(command, arguments.subspan(1));
    }
  }
  std::cerr << "dtensor: no command \"" << arguments[0] << "\"\n";
  print_usage(std::cerr);
  return 2;
}

}  // namespace
}  // namespace dtensor::tools

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const int status = dtensor::tools::main_of(arguments);
  // A full disk shows at the latest here; a script must not take half an answer for one.
  if (std::cout.flush()) return status;
  std::cerr
      << "dtensor: the output could not be written whole; is stdout closed, or its disk full?\n";
  return status == 0 ? 1 : status;
}
