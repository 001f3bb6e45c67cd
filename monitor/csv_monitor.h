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
  // `folder` exists.
  explicit CsvMonitor(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void write(std::span<const Event> events) override;
  // Of the files with such a name and header loses each the rows at its end that are beyond: those
  // of one run, whose samples rise; and a row that was cut in the middle. What is no such file
  // stays.
  void go_on_from(int64_t samples) override;
  // Those that were written since then, of all their rows since the samples last began to rise.
  void begin_anew(double since) override;

 private:
  struct File {
    std::filesystem::path path;
    std::ofstream stream;
  };
  File& file_of(const std::string& tag);
  void cut_rows_beyond(int64_t samples, double since);

  std::filesystem::path folder_;
  std::map<std::string, File> files_;
};

// As Python's str() of a float: "0.1", "1.0", "5e-05", "nan".
std::string python_number(double value);

}  // namespace zeroth::monitor
