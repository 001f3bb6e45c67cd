// Event files that TensorBoard reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "monitor/monitor.h"

namespace zeroth::monitor {

inline constexpr std::string_view kEventFile = "events.out.tfevents.";

// A TensorBoard monitor writes DIRECTORY/events.out.tfevents.TIME.HOST.PID.0, a new file for each
// run. TensorBoard reads the files of a directory by name, so TIME is larger than in existing
// files.
class TensorBoard final : public Monitor {
 public:
  // Requires that `directory` exists. Throws an Error that names the file if it cannot be written.
  explicit TensorBoard(const std::filesystem::path& directory);

  void write(std::span<const Event> events) override;
  // Makes TensorBoard drop the later points that it has read.
  void resume_from(int64_t x) override;
  void start_over(double) override { resume_from(-1); }

 private:
  void append(const std::string& bytes);

  std::filesystem::path path_;
  std::ofstream stream_;
};

// Returns a record of such a file, framed (TFRecord, with CRC32Cs) and encoded (the protocol buffer
// tensorflow.Event). Times are seconds since 1970.
std::string version_record(double wall_time);
std::string scalar_record(const Event& event, double wall_time);
// Returns the record of a session that starts at `x`.
std::string start_record(int64_t x, double wall_time);

}  // namespace zeroth::monitor
