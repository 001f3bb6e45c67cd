// A small model with data in a temporary folder, and runs of the real programs on it.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace zeroth::trainer {

class Workbench {
 public:
  struct Result {
    int code = -1;
    std::string out;
    std::string err;
  };
  using Rows = std::vector<nlohmann::json>;

  // Holds model/ (a random Llama and a byte-level BPE tokenizer), train.bin of 40 windows of 16
  // positions and qa.jsonl of 13 lines of unequal length.
  Workbench();

  std::filesystem::path operator/(const std::string& name) const { return directory_ / name; }
  void write(const std::string& name, const std::string& text) const;
  std::string read(const std::string& name) const;

  // `zeroth --num_gpus ranks finetune arguments`, inside the folder, on the CPU with one thread a
  // rank.
  Result zeroth(int ranks, const std::string& arguments) const;
  // `finetune arguments` by itself, with `environment` ("RANK=0 ...") before it.
  Result finetune(const std::string& arguments, const std::string& environment = "") const;
  // Any shell command; $FINETUNE names the program. One that is not over within `limit` is killed
  // with all that it started, and an Error with the end of its output fails the test.
  Result shell(const std::string& command,
               std::chrono::seconds limit = std::chrono::minutes(2)) const;

  // The lines of a metrics file: those of steps, or those of evaluations.
  Rows steps(const std::string& file) const { return rows(file, "loss"); }
  Rows evaluations(const std::string& file) const { return rows(file, "eval_loss"); }
  // All that have `key`.
  Rows rows(const std::string& file, const std::string& key) const;

 private:
  TempFolder temporary_;
  const std::filesystem::path& directory_ = temporary_.path();
};

// Words before a program: its process gets `signal` as soon as it has written `text`, or where that
// is empty as soon as it is through with pages of a file, whatever else the machine does
// (signal_behind.cpp).
std::string signalled_behind(const std::string& text, int signal);

// The beginning of a step's row in a metrics file.
std::string row_of_step(int64_t step);

std::vector<double> losses(const Workbench::Rows& rows);
bool has(const std::string& text, std::string_view part);

}  // namespace zeroth::trainer
