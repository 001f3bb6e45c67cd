// DeepSpeed's csv_monitor: one file per tag, one row per event.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "monitor/monitor.h"

namespace zeroth::monitor {

// FOLDER/Train_Samples_lr.csv with the header "step,lr"; its step counts samples. Bytes as Python's
// csv module writes them. A file that is there already is continued, under the header it has.
// Nothing is quoted or escaped: tags are names in our own code, all else is numbers.
class CsvMonitor final : public Monitor {
 public:
  // `directory` exists.
  explicit CsvMonitor(std::filesystem::path directory) : directory_(std::move(directory)) {}

  void write(std::span<const Event> events) override;
  // Of the files with such a name and header loses each the rows at its end that are beyond: those
  // of one run, whose samples rise; and a row that was cut in the middle. What is no such file
  // stays.
  void resume_from(int64_t samples) override;
  // Those that were written since then, of all their rows since the samples last began to rise.
  void start_over(double since) override;

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

// As Python's str() of a float: "0.1", "1.0", "5e-05", "nan".
std::string format_python_float(double value);

}  // namespace zeroth::monitor
