// Options whose value is a number. CLI11 itself reads 010 as octal and clamps values that are too
// large.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zeroth::trainer {

// NumberOptions adds such options to an app. A value that does not fully parse in base 10 is
// appended to `errors` and leaves the option unset. Nothing is owned.
class NumberOptions {
 public:
  NumberOptions(CLI::App& app, std::vector<std::string>& errors) : app_(app), errors_(errors) {}

  void add(const std::string& name, std::optional<int64_t>& value, int64_t max,
           const std::string& help);
  void add(const std::string& name, std::optional<double>& value, const std::string& help);

 private:
  CLI::App& app_;
  std::vector<std::string>& errors_;
};

}  // namespace zeroth::trainer
