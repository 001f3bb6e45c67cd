// CSV files as DeepSpeed's csv_monitor writes them: one file per tag, one row per event.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "monitor/monitor.h"

namespace zeroth::monitor {

// A CsvMonitor writes DIRECTORY/Train_Samples_lr.csv with the header "step,lr"; the step column
// counts samples. The bytes are those of Python's csv module. An existing file is continued under
// its own header. Nothing is quoted or escaped: tags are names in our own code, all else is
// numbers.
class CsvMonitor final : public Monitor {
 public:
  // Requires that `directory` exists.
  explicit CsvMonitor(std::filesystem::path directory) : directory_(std::move(directory)) {}

  void write(std::span<const Event> events) override;
  // Removes the rows after `samples` from the end of each file with such a name and header: rows of
  // one run, whose samples increase, and an incomplete last row. Other files stay unchanged.
  void resume_from(int64_t samples) override { truncate_rows_after(samples, 0); }
  // Removes, from each file written after `since`, all rows since its samples last began to
  // increase.
  void start_over(double since) override { truncate_rows_after(-1, since); }

 private:
  struct TagFile {
    std::filesystem::path path;
    std::ofstream stream;
  };
  TagFile& file_for_tag(const std::string& tag);
  void truncate_rows_after(int64_t samples, double since);

  std::filesystem::path directory_;
  std::map<std::string, TagFile> files_;
};

// Returns `value` as Python's str() formats a float: "0.1", "1.0", "5e-05", "nan".
std::string format_python_float(double value);

}  // namespace zeroth::monitor
