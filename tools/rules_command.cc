#include "dtensor/tools/rules_command.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "dtensor/ops/registry.h"
#include "dtensor/ops/rules_table.h"

namespace dtensor::tools {
namespace {

// A rule once, and under which op of the registry it stands.
struct Listed {
  std::string entry;
  PlacementSignature signature;
};

// Those of one op, or of all where `op` is empty. An op that is made of others has theirs.
std::vector<Listed> signatures(const std::string& op) {
  std::vector<Listed> all;
  for (const ops::OpEntry& entry : ops::all_ops()) {
    for (const Rule& rule : ops::rules_of(entry)) {
      PlacementSignature signature = signature_of(rule);
      if (!op.empty() && entry.name != op && signature.op != op) continue;
      const bool known = std::ranges::any_of(all, [&](const Listed& l) {
        return l.signature.op == signature.op && l.signature.rule == signature.rule;
      });
      if (!known) all.push_back({entry.name, std::move(signature)});
    }
  }
  return all;
}

std::vector<std::string> texts(const std::vector<Placement>& placements) {
  std::vector<std::string> all;
  for (const Placement p : placements) all.push_back(to_string(p));
  return all;
}

std::string joined(const std::vector<Placement>& placements) {
  std::string text;
  for (const Placement p : placements) text += (text.empty() ? "" : ", ") + to_string(p);
  return text;
}

void print_json(const std::vector<Listed>& listed, std::ostream& out) {
  auto array = nlohmann::ordered_json::array();
  for (const Listed& l : listed) {
    auto rows = nlohmann::ordered_json::array();
    for (const SignatureRow& row : l.signature.rows) {
      rows.push_back(
          {{"in", texts(row.in)}, {"out", texts(row.out)}, {"communicates", row.communicates}});
    }
    array.push_back({{"op", l.signature.op}, {"rule", l.signature.rule}, {"rows", rows}});
  }
  out << array.dump() << "\n";
}

void print_text(const std::vector<Listed>& listed, std::ostream& out) {
  for (const Listed& l : listed) {
    out << l.signature.op << "  " << l.signature.rule << "\n";
    for (const SignatureRow& row : l.signature.rows) {
      out << "  " << joined(row.in) << " -> " << joined(row.out)
          << (row.communicates ? "  (communicates)" : "") << "\n";
    }
  }
}

}  // namespace

int rules_command(Arguments arguments, std::ostream& out, std::ostream& err) {
  bool json = false;
  bool markdown = false;
  std::string op;
  for (const std::string& argument : arguments) {
    if (argument == "--help") {
      throw HelpRequest();
    } else if (argument == "--json") {
      json = true;
    } else if (argument == "--markdown") {
      markdown = true;
    } else if (op.empty() && !argument.starts_with("-")) {
      op = argument;
    } else {
      throw UsageError("unexpected " + argument);
    }
  }
  if (markdown && (json || !op.empty())) throw UsageError("--markdown is the table of all ops");
  if (markdown) {
    out << ops::rules_table();
    return 0;
  }
  const std::vector<Listed> listed = signatures(op);
  if (listed.empty()) {
    std::string known;
    for (const Listed& l : signatures("")) {
      if (known.find(" " + l.entry) == std::string::npos) known += " " + l.entry;
    }
    throw UsageError("no op \"" + op + "\" with a rule in index letters; there are" + known);
  }
  json ? print_json(listed, out) : print_text(listed, out);
  return 0;
}

}  // namespace dtensor::tools
