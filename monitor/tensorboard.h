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

// FOLDER/events.out.tfevents.TIME.HOST.PID.0, a new one for each run. TensorBoard reads a folder's
// files by name: TIME is larger than in those that are there.
class TensorBoard final : public Monitor {
 public:
  // `directory` exists. Throws an Error that names the file when it cannot be written.
  explicit TensorBoard(const std::filesystem::path& directory);

  void write(std::span<const Event> events) override;
  // TensorBoard drops what it has read of later points.
  void resume_from(int64_t x) override;
  void start_over(double) override { resume_from(-1); }

 private:
  void append(const std::string& bytes);

  std::filesystem::path path_;
  std::ofstream stream_;
};

// The records of such a file, framed (TFRecord) and encoded (the protocol buffer
// tensorflow.Event). Times are seconds since 1970.
std::string version_record(double wall_time);
std::string scalar_record(const Event& event, double wall_time);
// A session starts at `x`.
std::string start_record(int64_t x, double wall_time);

// The checksum of such a record: the Castagnoli polynomial (RFC 3720, B.4).
uint32_t crc32c(std::string_view bytes);

}  // namespace zeroth::monitor
