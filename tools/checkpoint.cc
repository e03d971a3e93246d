#include "dtensor/tools/checkpoint.h"

#include <array>
#include <exception>

#include "dtensor/tools/checkpoint_commands.h"
#include "dtensor/tools/command.h"

namespace dtensor::tools {
namespace {

constexpr std::array kCommands = {
    Command{"ls", "PATH [--json]", "tensors with dtype, shape and chunks", checkpoint_ls},
    Command{"verify", "PATH [--deep] [--json] [--progress]",
            "records, sizes, tiling, and with --deep the data", checkpoint_verify},
    Command{"merge", "PATH [--json]", "writes an attempt's manifest: opening it is then faster",
            checkpoint_merge},
    Command{
        "reshard",
        "FROM TO_RUN (--world N | --layout \"dp=2,tp=2:S(0),R\") [--step N] [--include PATTERNS] "
        "[--exclude PATTERNS] [--buffer MIB] [--json] [--progress]",
        "a new attempt, cut as another mesh would have saved it", checkpoint_reshard},
    Command{"import",
            "FROM TO_RUN --step N [--world N | --layout TEXT] [--include PATTERNS] "
            "[--exclude PATTERNS] [--buffer MIB] [--json] [--progress]",
            "a new attempt from a Hugging Face or DCP directory, or a file", checkpoint_import},
    Command{"export",
            "FROM TO_DIR [--max-shard-size 5GB] [--dtype bf16] [--include PATTERNS] "
            "[--exclude PATTERNS] [--buffer MIB] [--json] [--progress]",
            "a Hugging Face directory: one file, or several with an index", checkpoint_export},
    Command{"diff",
            "FIRST SECOND [--tolerance X] [--include PATTERNS] [--exclude PATTERNS] [--buffer MIB] "
            "[--json] [--progress]",
            "names, shapes, dtypes and values; status 1 where they differ", checkpoint_diff},
};

void print_usage(std::ostream& out) {
  for (const Command& c : kCommands) {
    out << "usage: dtensor checkpoint " << c.name << " " << c.usage << "\n      " << c.summary
        << "\n";
  }
  out << "PATH, FROM, FIRST, SECOND: a run's directory (its newest complete step counts), an\n"
         "attempt's, a Hugging Face directory, one that PyTorch's DCP wrote as safetensors, or "
         "one\n"
         "safetensors file. PATTERNS: separated by commas; * stays inside a part of a name, ** "
         "does "
         "not.\n";
}

}  // namespace

int checkpoint_command(std::span<const std::string> args, std::ostream& out, std::ostream& err) {
  if (!args.empty() && args[0] == "--help") {
    print_usage(out);
    return 0;
  }
  for (const Command& command : kCommands) {
    if (args.empty() || command.name != args[0]) continue;
    try {
      return command.run(args.subspan(1), out, err);
    } catch (const HelpRequest&) {
      out << "usage: dtensor checkpoint " << command.name << " " << command.usage << "\n      "
          << command.summary << "\n";
      return 0;
    } catch (const UsageError& e) {
      err << "dtensor checkpoint " << command.name << ": " << e.what()
          << "\nusage: dtensor checkpoint " << command.name << " " << command.usage << "\n";
      return 2;
    } catch (const std::exception& e) {
      err << "dtensor checkpoint " << command.name << ": " << e.what() << "\n";
      return 1;
    }
  }
  print_usage(err);
  return 2;
}

}  // namespace dtensor::tools
