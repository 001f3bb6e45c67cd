#include "base/text/units.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <csignal>

namespace zeroth::units_test {

TEST_CASE("bytes are scaled by 1024 with three digits") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(512) == "512 B");
  CHECK(format_bytes(1536) == "1.50 KiB");
  CHECK(format_bytes(37'000'000) == "35.3 MiB");
  CHECK(format_bytes(int64_t{3} << 40) == "3.00 TiB");
}

TEST_CASE("counts are scaled by 1000 with three digits") {
  CHECK(format_count(950) == "950");
  CHECK(format_count(31'600'000) == "31.6M");
  CHECK(format_count(1'100'000'000) == "1.10B");
}

TEST_CASE("durations keep the two largest units") {
  CHECK(format_duration(0.84) == "0.8s");
  CHECK(format_duration(42) == "42s");
  CHECK(format_duration(185) == "3m05s");
  CHECK(format_duration(7620) == "2h07m");
}

TEST_CASE("a number that is none has no sign, all others keep theirs") {
  CHECK(fmt::format("{}", canonicalize_nan(-std::nan(""))) == "nan");
  CHECK(fmt::format("{}", canonicalize_nan(-INFINITY)) == "-inf");
  CHECK(canonicalize_nan(-1.5) == -1.5);
}

TEST_CASE("a signal has its name, or its number where it has none") {
  CHECK(signal_name(SIGINT) == "SIGINT");
  CHECK(signal_name(SIGRTMIN + 2) == "signal 36");
}

TEST_CASE("words are counted with or without an s") {
  CHECK(pluralize(1, "rank") == "1 rank");
  CHECK(pluralize(0, "rank") == "0 ranks");
  CHECK(pluralize(12, "step") == "12 steps");
}

TEST_CASE("a number is the whole text, or none") {
  CHECK(parse_number<int>("12") == 12);
  CHECK(parse_number<int>("-3") == -3);
  CHECK(parse_number<double>("2.5e-1") == 0.25);
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "x", "1.5", "99999999999"}) {
    CHECK_MESSAGE(!parse_number<int>(text), text);
  }
}

TEST_CASE("bytes are printed as two digits each") {
  CHECK(to_hex("") == "");
  CHECK(to_hex(std::string_view("\x00\x0a\xff", 3)) == "000aff");
}

TEST_CASE("fields are removed from a text one by one") {
  std::string_view text = "a::b";
  CHECK(next_field(text, ':') == "a");
  CHECK(next_field(text, ':') == "");
  CHECK(next_field(text, ':') == "b");
  CHECK(text.empty());
  CHECK(next_field(text, ':') == "");
}

}  // namespace zeroth::units_test
