// --report_to: Trainer's way to switch monitors on.
#pragma once

#include <string>
#include <vector>

namespace zeroth::trainer {

struct Flags;

struct ReportTo {
  bool tensorboard = false;
  bool csv = false;
  std::vector<std::string> services;  // that are named: they become files
  std::string directory;              // where they write: --logging_dir; empty: runs/ in --output
};

// Fills flags.report_to. An unknown name is appended to `errors`.
void resolve_report_to(const std::vector<std::string>& names, const std::string& logging_dir,
                       Flags& flags, std::vector<std::string>& errors);

}  // namespace zeroth::trainer
