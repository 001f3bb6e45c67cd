#include "data/samples/token_windows.h"

#include "tests/data/data_test_support.h"
#include "tests/data/megatron_header.h"

namespace zeroth::data::megatron_index_test {

namespace {

// One sequence of `length` ids from byte `begin` on.
std::string one(uint8_t kind, int32_t length, int64_t begin = 0) {
  std::string text = megatron_header(kind, 1);
  append_number(text, length);
  append_number(text, begin);
  return text + std::string(16, '\0');
}

}  // namespace

TEST_CASE("An index says how wide ids are; without one nothing is said") {
  TempFolder directory;
  const auto tokens = directory.path() / "t.bin";
  CHECK_FALSE(megatron_token_type(tokens, 12));
  directory.write("t.idx", "another kind of index");
  CHECK_FALSE(megatron_token_type(tokens, 12));
  directory.write("t.idx", one(8, 6));
  CHECK(megatron_token_type(tokens, 12) == TokenType::kUint16);
  directory.write("t.idx", one(4, 3));
  CHECK(megatron_token_type(tokens, 12) == TokenType::kUint32);
  directory.write("t.idx", megatron_header(4, 0));
  CHECK(megatron_token_type(tokens, 0) == TokenType::kUint32);
}

TEST_CASE("An index of another file, of another kind or cut off is an Error") {
  TempFolder directory;
  const auto refusal = [&](const std::string& index) {
    directory.write("t.idx", index);
    return error_of([&] { megatron_token_type(directory.path() / "t.bin", 12); });
  };
  check_contains(refusal(one(8, 5)), "that has 12 bytes, and the index says 10");
  check_contains(refusal(one(5, 1, 4)),
                 "t.idx says that the ids are int64; supported are uint16 and int32");
  check_contains(refusal(one(77, 6)), "t.idx: unknown dtype code 77");
  check_contains(refusal(one(8, 6).substr(0, 20)), "t.idx is truncated: 20 bytes");
  check_contains(refusal(megatron_header(8, 1)), "the index says an invalid size");
  check_contains(refusal(megatron_header(8, uint64_t{1} << 63)), "the index says an invalid size");
  check_contains(refusal(one(8, -6)), "the index says an invalid size");
  check_contains(refusal(one(8, 6, INT64_MAX)), "the index says an invalid size");
}

}  // namespace zeroth::data::megatron_index_test
