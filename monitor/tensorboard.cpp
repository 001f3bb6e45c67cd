#include "monitor/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <system_error>

#include "base/error.h"
#include "base/files/crc32c.h"
#include "base/machine/machine_id.h"
#include "base/machine/process_limits.h"

namespace zeroth::monitor {
namespace {

double wall_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Encodes the least significant byte first.
template <typename Bits>
std::string fixed(Bits bits) {
  std::string bytes;
  for (size_t i = 0; i < sizeof bits; ++i) bytes += static_cast<char>(bits >> (8 * i) & 0xff);
  return bytes;
}

// Encodes seven bits per byte, the least significant first; the top bit marks that more follow.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}

// Wire types of a protocol buffer. A field is a key of number and wire type, then the value.
enum Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string key(int number, Wire wire) {
  return varint(static_cast<uint64_t>(number << 3 | wire));
}

std::string bytes_field(int number, const std::string& bytes) {
  return key(number, kBytes) + varint(bytes.size()) + bytes;
}

// Returns the record of an event at `x` (0: no step is stored), whose content is `field`, in a
// frame: length, checksum of the length, data, checksum of the data.
std::string record(double wall_time, int64_t x, const std::string& field) {
  std::string data = key(1, kFixed64) + fixed(std::bit_cast<uint64_t>(wall_time));
  if (x != 0) data += key(2, kVarint) + varint(static_cast<uint64_t>(x));
  data += field;
  const auto masked_crc = [](const std::string& bytes) {
    return fixed<uint32_t>(std::rotr(crc32c(bytes), 15) + 0xa282ead8U);
  };
  const std::string length = fixed<uint64_t>(data.size());
  return length + masked_crc(length) + data + masked_crc(data);
}

// Returns the largest TIME of the files in `directory`; 0 without one. Ignores times of another
// century.
int64_t newest_time(const std::filesystem::path& directory) {
  int64_t newest = 0;
  std::error_code failure;
  for (const auto& file : std::filesystem::directory_iterator(directory, failure)) {
    const std::string name = file.path().filename().string();
    if (!name.starts_with(kEventFile)) continue;
    int64_t time = 0;
    std::from_chars(name.data() + kEventFile.size(), name.data() + name.size(), time);
    if (time < 4'000'000'000) newest = std::max(newest, time);
  }
  return newest;
}

std::string file_name(const std::filesystem::path& directory) {
  const int64_t time = std::max(static_cast<int64_t>(wall_now()), newest_time(directory) + 1);
  return fmt::format("{}{:010}.{}.{}.0", kEventFile, time, machine_name(), ::getpid());
}

}  // namespace

std::string version_record(double wall_time) {
  return record(wall_time, 0, bytes_field(3, "brain.Event:2"));
}

std::string scalar_record(const Event& event, double wall_time) {
  const auto value = std::bit_cast<uint32_t>(static_cast<float>(event.value));
  const std::string point = bytes_field(1, event.tag) + key(2, kFixed32) + fixed(value);
  return record(wall_time, event.x, bytes_field(5, bytes_field(1, point)));
}

std::string start_record(int64_t x, double wall_time) {
  constexpr uint64_t kStart = 1;
  return record(wall_time, x, bytes_field(7, key(1, kVarint) + varint(kStart)));
}

TensorBoard::TensorBoard(const std::filesystem::path& directory)
    : path_(directory / file_name(directory)) {
  errno = 0;
  stream_.open(path_, std::ios::binary);
  if (!stream_) throw Error("{} cannot be written: {}", path_.string(), system_reason(errno));
  append(version_record(wall_now()));
}

void TensorBoard::write(std::span<const Event> events) {
  std::string bytes;
  for (const Event& event : events) bytes += scalar_record(event, wall_now());
  append(bytes);
}

// Writes the record twice, since TensorBoard ignores the first start that it sees in a directory.
void TensorBoard::resume_from(int64_t x) {
  const std::string start = start_record(x + 1, wall_now());
  append(start + start);
}

void TensorBoard::append(const std::string& bytes) {
  errno = 0;
  stream_ << bytes << std::flush;
  if (!stream_) throw Error("{}: write failed: {}", path_.string(), system_reason(errno));
}

}  // namespace zeroth::monitor
