// Options whose value is a number. CLI11 by itself reads 010 as octal and clamps what is too large.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zeroth::trainer {

// What does not parse as a whole, in base 10, is appended to `errors` and leaves the value
// unset. Nothing is owned.
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
