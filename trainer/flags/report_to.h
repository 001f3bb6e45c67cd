// The flag --report_to, with which Trainer enables monitors.
#pragma once

#include <string>
#include <vector>

namespace zeroth::trainer {

struct Flags;

struct ReportTo {
  bool tensorboard = false;
  bool csv = false;
  std::vector<std::string> services;  // named services: replaced by files
  std::string directory;              // where they write: --logging_dir; empty: runs/ in --output
};

// Fills flags.report_to. Appends an unknown name to `errors`.
void resolve_report_to(const std::vector<std::string>& names, const std::string& logging_dir,
                       Flags& flags, std::vector<std::string>& errors);

}  // namespace zeroth::trainer
