#include "data/samples/token_windows.h"

#include "tests/data/data_test_support.h"

namespace zeroth::data::token_windows_test {

namespace {

struct Row {
  std::vector<int64_t> tokens, targets;
};

Row fill(const Dataset& dataset, int64_t index, int64_t length) {
  Row row{std::vector<int64_t>(length), std::vector<int64_t>(length)};
  dataset.fill(index, row.tokens, row.targets);
  return row;
}

using Ids = std::vector<int64_t>;

}  // namespace

TEST_CASE("joined_tail_dropped: windows share a token, and the last one is what is left") {
  TempFolder directory;
  const auto path = directory.write_numbers<uint16_t>("t.bin", {0, 1, 2, 3, 4, 5, 6, 7, 8});
  for (const int64_t count : {9, 8, 7, 5, 4, 3, 2}) {
    std::filesystem::resize_file(path, static_cast<size_t>(count) * 2);
    const auto dataset = open_dataset({.path = path, .seq_len = 3, .vocab_size = 9});
    CHECK(dataset->size() == (count - 1 + 2) / 3);
    CHECK(dataset->stats().tokens == count - 1);
    CHECK(dataset->stats().num_label_tokens == count - 1);
    CHECK(dataset->stats().lost_tokens == 0);
    int64_t next = 1;  // each token but the first is a target once
    for (int64_t i = 0; i < dataset->size(); ++i) {
      const Row row = fill(*dataset, i, dataset->length(i));
      for (const int64_t target : row.targets) CHECK(target == next++);
      CHECK(row.tokens.front() == 3 * i);
    }
    CHECK(next == count);
    CHECK(dataset->sample_name(0) == path.string() + " sample 0");
  }
}

TEST_CASE("joined_tail_dropped: version 1 of the samples leaves the rest out, and counts it") {
  TempFolder directory;
  const auto path = directory.write_numbers<uint16_t>("t.bin", {0, 1, 2, 3, 4, 5, 6, 7, 8});
  const auto dataset = open_dataset({.path = path, .seq_len = 3, .vocab_size = 9, .version = 1});
  CHECK(dataset->size() == 2);
  CHECK(dataset->stats().tokens == 6);
  CHECK(dataset->stats().lost_tokens == 2);
  CHECK(dataset->length(1) == 3);
  check_contains(
      error_of([&] { open_dataset({.path = path, .seq_len = 9, .vocab_size = 9, .version = 1}); }),
      "t.bin has 9 tokens, a sample of 9 positions needs 10");
}

TEST_CASE("joined_tail_dropped: the padding of a short window is not trained") {
  TempFolder directory;
  const auto path = directory.write_numbers<uint16_t>("t.bin", {5, 6, 7, 8, 4});
  const auto dataset = open_dataset({.path = path, .seq_len = 3, .vocab_size = 9});
  CHECK(dataset->length(1) == 1);
  const Row row = fill(*dataset, 1, 3);
  CHECK(row.tokens == Ids{8, 0, 0});
  CHECK(row.targets == Ids{4, kIgnoreIndex, kIgnoreIndex});
}

TEST_CASE("Places past the window are padding without a target") {
  TempFolder directory;
  const auto path = directory.write_numbers<uint16_t>("t.bin", {5, 6, 7});
  const auto dataset = open_dataset({.path = path, .seq_len = 2, .vocab_size = 9});
  const Row row = fill(*dataset, 0, 4);
  CHECK(row.tokens == Ids{5, 6, 0, 0});
  CHECK(row.targets == Ids{6, 7, kIgnoreIndex, kIgnoreIndex});
}

TEST_CASE("Ids are 16 bits wide up to a vocabulary of 65536, then 32") {
  TempFolder directory;
  const auto narrow = directory.write_numbers<uint16_t>("n.bin", {65535, 1, 2});
  CHECK(fill(*open_dataset({.path = narrow, .seq_len = 2, .vocab_size = 65536}), 0, 2).tokens ==
        Ids{65535, 1});
  const auto wide = directory.write_numbers<uint32_t>("w.bin", {65536, 1, 2});
  CHECK(fill(*open_dataset({.path = wide, .seq_len = 2, .vocab_size = 65537}), 0, 2).tokens ==
        Ids{65536, 1});
}

TEST_CASE("A file that holds no whole ids or no whole window is an Error with the numbers") {
  TempFolder directory;
  const auto odd = directory.write("odd.bin", "abc");
  const auto open = [](const auto& path, int64_t vocab_size) {
    return [=] { open_dataset({.path = path, .seq_len = 2, .vocab_size = vocab_size}); };
  };
  check_contains(error_of(open(odd, 9)), "odd.bin has 3 bytes, not a multiple of 2");
  check_contains(error_of(open(odd, 70000)), "not a multiple of 4");
  const auto small = directory.write_numbers<uint16_t>("small.bin", {1});
  check_contains(error_of(open(small, 9)), "small.bin has 1 token, a sample of 1 position needs 2");
  check_contains(error_of(open(directory.write("empty.bin", ""), 9)), "empty.bin has 0 tokens");
}

TEST_CASE("An id outside the vocabulary is an Error at opening, with file, place and value") {
  TempFolder directory;
  const auto path = directory.write_numbers<uint16_t>("t.bin", {1, 2, 3, 4, 9, 10});
  check_contains(error_of([&] { open_dataset({.path = path, .seq_len = 2, .vocab_size = 9}); }),
                 "t.bin: token 4 is 9, but the vocabulary has 9 ids");
  std::vector<uint32_t> many(3'000'000, 7);
  many[2'500'000] = 4'000'000'000;
  const auto wide = directory.write_numbers<uint32_t>("w.bin", many);
  check_contains(error_of([&] { open_dataset({.path = wide, .seq_len = 2, .vocab_size = 70000}); }),
                 "w.bin: token 2500000 is 4000000000");
}

TEST_CASE("An id that leaves the vocabulary after opening is an Error where it is read") {
  TempFolder directory;
  const auto path = directory.write_numbers<uint16_t>("t.bin", {1, 2, 3, 4, 8});
  const auto dataset = open_dataset({.path = path, .seq_len = 2, .vocab_size = 9});
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(8).put('\x09');
  fill(*dataset, 0, 2);
  check_contains(error_of([&] { fill(*dataset, 1, 2); }), "t.bin: token 4 is 9");
}

TEST_CASE("A text file is encoded whole with nothing added") {
  TempFolder directory;
  const Tokenizer tokenizer = Tokenizer::load(fixture("llama3"));
  const std::string text = "The quick brown fox.\n\nthe dog\n";
  const auto path = directory.write("t.txt", text);
  const auto ids = tokenizer.encode(text);
  const auto dataset = open_dataset({.path = path,
                                     .tokenizer = &tokenizer,
                                     .seq_len = std::ssize(ids) - 1,
                                     .vocab_size = tokenizer.vocab_size()});
  REQUIRE(dataset->size() == 1);
  const Row row = fill(*dataset, 0, std::ssize(ids) - 1);
  CHECK(row.tokens == Ids(ids.begin(), ids.end() - 1));
  CHECK(row.targets == Ids(ids.begin() + 1, ids.end()));
  directory.write("t.txt", "\xef\xbb\xbf" + text);  // a byte order mark is no text
  const auto marked = open_dataset({.path = path,
                                    .tokenizer = &tokenizer,
                                    .seq_len = std::ssize(ids) - 1,
                                    .vocab_size = tokenizer.vocab_size()});
  CHECK(fill(*marked, 0, std::ssize(ids) - 1).tokens == row.tokens);
  directory.write("t.txt", "ab\xff");
  check_contains(
      error_of([&] {
        open_dataset({.path = path, .tokenizer = &tokenizer, .seq_len = 1, .vocab_size = 9});
      }),
      "t.txt: the text is not UTF-8 at byte 2");
}

}  // namespace zeroth::data::token_windows_test
