#include "data/samples/token_windows.h"

#include <numeric>
#include <random>

#include "tests/data/data_test_support.h"
#include "tests/data/megatron_header.h"

namespace zeroth::data::binary_tokens_test {

namespace {

std::string refusal(const DatasetOptions& options) {
  return error_of([&] { map_binary_tokens(options); });
}

size_t count_of(const TokenStream& stream) {
  return std::visit([](const auto& ids) { return ids.size(); }, stream.ids);
}

template <typename T>
std::vector<T> ids_from_3() {
  std::vector<T> ids(200);
  std::iota(ids.begin(), ids.end(), T{3});
  return ids;
}

template <typename T>
std::vector<T> swapped(std::vector<T> ids) {
  for (T& id : ids) {
    T other = 0;
    for (size_t i = 0; i < sizeof(T); ++i)
      other = static_cast<T>(other << 8 | ((id >> 8 * i) & 0xff));
    id = other;
  }
  return ids;
}

// The index that Megatron writes: two sequences of ids of a kind and width.
std::string index(uint8_t kind, uint32_t width, uint32_t first, uint32_t second) {
  std::string text = megatron_header(kind, 2);
  for (const uint32_t length : {first, second}) append_number(text, length);
  for (const uint64_t begin : {uint64_t{0}, uint64_t{first} * width}) append_number(text, begin);
  for (const uint64_t document : {0, 1, 2}) append_number(text, document);
  return text;
}

}  // namespace

TEST_CASE("tokens_of_other_width: ids of 32 or 64 bits are not read in 16") {
  TempFolder directory;
  const auto wide = directory.write_numbers<uint32_t>("wide.bin", ids_from_3<uint32_t>());
  check_contains(
      refusal({.path = wide, .seq_len = 8, .vocab_size = 512}),
      "wide.bin looks like ids of 32 bits: --token-dtype uint32 reads them; --token-dtype "
      "uint16 reads it as ids of 16 bits anyway");
  CHECK(count_of(map_binary_tokens(
            {.path = wide, .seq_len = 8, .vocab_size = 512, .token_type = TokenType::kUint32})) ==
        200);
  CHECK(count_of(map_binary_tokens(
            {.path = wide, .seq_len = 8, .vocab_size = 512, .token_type = TokenType::kUint16})) ==
        400);
  const auto wider = directory.write_numbers<uint64_t>("wider.bin", ids_from_3<uint64_t>());
  for (const int64_t vocab_size : {512, 70000}) {
    check_contains(refusal({.path = wider, .seq_len = 8, .vocab_size = vocab_size}),
                   "looks like ids of 64 bits: python3 -c \"import numpy; numpy.fromfile(FILE, "
                   "'<i8')");
  }
  const auto few = directory.write_numbers<uint32_t>("few.bin", {7, 8, 9, 8});
  check_contains(refusal({.path = few, .seq_len = 8, .vocab_size = 512}), "ids of 32 bits");
}

TEST_CASE("tokens_of_other_width: the most significant byte first is not read last") {
  TempFolder directory;
  for (const int64_t vocab_size : {512, 65536}) {
    const auto wide = directory.write_numbers<uint32_t>("b.bin", swapped(ids_from_3<uint32_t>()));
    check_contains(refusal({.path = wide, .seq_len = 8, .vocab_size = vocab_size}),
                   "ids of 32 bits, most significant byte first: python3 -c \"import numpy; "
                   "numpy.fromfile(FILE, '>u4').astype('uint16')");
  }
  const auto narrow = directory.write_numbers<uint16_t>("n.bin", swapped(ids_from_3<uint16_t>()));
  check_contains(refusal({.path = narrow, .seq_len = 8, .vocab_size = 512}),
                 "token 0 is 768, but the vocabulary has 512 ids; its first ids are valid as "
                 "ids of 16 bits, most significant byte first");
  // Where each order gives ids of the vocabulary, small ids are the frequent ones.
  std::mt19937 random(1);
  std::vector<uint16_t> ids(5000);
  for (uint16_t& id : ids) {
    id = static_cast<uint16_t>(std::geometric_distribution<int>(0.001)(random) % 65536);
  }
  const auto right = directory.write_numbers<uint16_t>("right.bin", ids);
  CHECK(count_of(map_binary_tokens({.path = right, .seq_len = 8, .vocab_size = 65536})) == 5000);
  const auto wrong = directory.write_numbers<uint16_t>("wrong.bin", swapped(ids));
  check_contains(refusal({.path = wrong, .seq_len = 8, .vocab_size = 65536}),
                 "wrong.bin looks like ids of 16 bits, most significant byte first");
}

TEST_CASE("tokens_of_other_width: 16 bits for a larger vocabulary are refused with the way out") {
  TempFolder directory;
  const auto narrow = directory.write_numbers<uint16_t>("n.bin", ids_from_3<uint16_t>());
  check_contains(refusal({.path = narrow, .seq_len = 8, .vocab_size = 128256}),
                 "its first ids are valid as ids of 16 bits: --token-dtype uint16");
  CHECK(count_of(map_binary_tokens({.path = narrow,
                                    .seq_len = 8,
                                    .vocab_size = 128256,
                                    .token_type = TokenType::kUint16})) == 200);
}

TEST_CASE("tokens_of_other_width: a header and text are not read as ids") {
  TempFolder directory;
  std::vector<uint32_t> header(300, 0);
  header[0] = 20240520;
  const auto of_llm_c = directory.write_numbers<uint32_t>("c.bin", header);
  check_contains(refusal({.path = of_llm_c, .seq_len = 8, .vocab_size = 65536}),
                 "has a header of llm.c: tail -c +1025");
  const auto text = directory.write("t.bin", std::string(200, 'a') + "\n and more, of even length");
  check_contains(refusal({.path = text, .seq_len = 8, .vocab_size = 65536}),
                 "looks like text: rename it to .txt");
}

TEST_CASE("tokens_of_other_width: Megatron's index says how wide the ids are") {
  TempFolder directory;
  const auto wide = directory.write_numbers<uint32_t>("w.bin", {1, 2, 3, 4, 5, 6});
  directory.write("w.idx", index(4, 4, 4, 2));
  CHECK(count_of(map_binary_tokens({.path = wide, .seq_len = 8, .vocab_size = 512})) == 6);
  check_contains(
      refusal({.path = wide, .seq_len = 8, .vocab_size = 512, .token_type = TokenType::kUint16}),
      "--token-dtype uint16, but its index (.idx) says uint32");
  const auto narrow = directory.write_numbers<uint16_t>("n.bin", {1, 2, 3, 4, 5, 6});
  directory.write("n.idx", index(8, 2, 4, 2));
  CHECK(count_of(map_binary_tokens({.path = narrow, .seq_len = 8, .vocab_size = 128256})) == 6);
}

TEST_CASE("Ordinary files are read, whatever their ids") {
  TempFolder directory;
  const auto open = [&](const std::vector<uint16_t>& ids, int64_t vocab_size) {
    const auto path = directory.write_numbers<uint16_t>("t.bin", ids);
    return count_of(map_binary_tokens({.path = path, .seq_len = 8, .vocab_size = vocab_size}));
  };
  CHECK(open(std::vector<uint16_t>(100, 0), 512) == 100);
  CHECK(open(std::vector<uint16_t>(100, 5), 512) == 100);
  CHECK(open({1, 0, 2, 0}, 512) == 4);
  CHECK(open({65535, 0, 1, 65535, 7, 8, 0, 0}, 65536) == 8);
  std::mt19937 random(2);
  std::vector<uint16_t> uniform(5000);
  for (uint16_t& id : uniform) id = static_cast<uint16_t>(random() % 65536);
  CHECK(open(uniform, 65536) == 5000);
}

}  // namespace zeroth::data::binary_tokens_test
