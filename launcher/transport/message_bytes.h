// Serialization of values for messages. A message lists its fields once, for both directions. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"

namespace zeroth::launcher {

// ByteWriter writes fields one after the other: numbers in 8 bytes, little-endian; strings and
// lists after their lengths.
class ByteWriter {
 public:
  template <typename... Fields>
  void operator()(const Fields&... fields) {
    (put(fields), ...);
  }
  std::string take() { return std::move(bytes_); }

 private:
  void put_word(uint64_t word) {
    for (int i = 0; i < 8; ++i) bytes_.push_back(static_cast<char>(word >> (8 * i) & 0xff));
  }
  template <typename Number>
  requires std::is_integral_v<Number>
  void put(Number number) { put_word(static_cast<uint64_t>(number)); }
  void put(double number) {
    uint64_t word = 0;
    std::memcpy(&word, &number, sizeof(word));
    put_word(word);
  }
  void put(std::chrono::milliseconds time) { put(time.count()); }
  void put(const std::string& text) {
    put_word(text.size());
    bytes_ += text;
  }
  template <typename First, typename Second>
  void put(const std::pair<First, Second>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <typename Value>
  void put(const std::optional<Value>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <typename Value>
  void put(const std::vector<Value>& values) {
    put_word(values.size());
    for (const Value& value : values) put(value);
  }
  template <typename Record>
  requires std::is_class_v<Record>
  void put(const Record& record) { visit_fields(record, *this); }

  std::string bytes_;
};

// ByteReader reads what ByteWriter has written. Throws Error if the bytes are invalid: too short, a
// number outside its type's range, or a list longer than the remaining bytes.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <typename... Fields>
  void operator()(Fields&... fields) {
    (get(fields), ...);
  }
  bool at_end() const { return rest_.empty(); }

 private:
  [[noreturn]] static void refuse() { throw Error("malformed message"); }

  uint64_t get_word() {
    if (rest_.size() < 8) refuse();
    uint64_t word = 0;
    for (size_t i = 8; i-- > 0;) word = word << 8 | static_cast<unsigned char>(rest_[i]);
    rest_.remove_prefix(8);
    return word;
  }
  // Every entry of a list takes one word or more.
  size_t get_length(size_t bytes_each) {
    const uint64_t length = get_word();
    if (length > rest_.size() / bytes_each) refuse();
    return static_cast<size_t>(length);
  }
  void get(bool& flag) {
    const uint64_t word = get_word();
    if (word > 1) refuse();
    flag = word == 1;
  }
  template <typename Number>
  requires std::is_integral_v<Number>
  void get(Number& number) {
    const auto word =
        static_cast<std::conditional_t<std::is_signed_v<Number>, int64_t, uint64_t>>(get_word());
    if (word < std::numeric_limits<Number>::min() || word > std::numeric_limits<Number>::max())
      refuse();
    number = static_cast<Number>(word);
  }
  void get(double& number) {
    const uint64_t word = get_word();
    std::memcpy(&number, &word, sizeof(word));
  }
  void get(std::chrono::milliseconds& time) {
    int64_t count = 0;
    get(count);
    time = std::chrono::milliseconds(count);
  }
  void get(std::string& text) {
    const size_t length = get_length(1);
    text = rest_.substr(0, length);
    rest_.remove_prefix(length);
  }
  template <typename First, typename Second>
  void get(std::pair<First, Second>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <typename Value>
  void get(std::optional<Value>& value) {
    bool there = false;
    get(there);
    value.reset();
    if (there) get(value.emplace());
  }
  template <typename Value>
  void get(std::vector<Value>& values) {
    values.clear();
    values.resize(get_length(8));
    for (Value& value : values) get(value);
  }
  template <typename Record>
  requires std::is_class_v<Record>
  void get(Record& record) { visit_fields(record, *this); }

  std::string_view rest_;
};

}  // namespace zeroth::launcher
