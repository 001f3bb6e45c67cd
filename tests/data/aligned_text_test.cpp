#include "data/tokenizer/aligned_text.h"

#include "tests/data/data_test_support.h"

namespace zeroth::data::aligned_text_test {
namespace {

std::string origin(const AlignedText& text, size_t begin, size_t end) {
  const TextRange range = text.origin(begin, end);
  return fmt::format("{}-{}", range.begin, range.end);
}

}  // namespace

TEST_CASE("A part of the original stands for itself") {
  const AlignedText part = AlignedText{.text = "abcdef"}.part(2, 5);
  CHECK(part.text == "cde");
  CHECK(origin(part, 0, 3) == "2-5");
  CHECK(origin(part.part(1, 3), 0, 1) == "3-4");
}

TEST_CASE("What is copied stands for its bytes, what is put there for those that it replaces") {
  const AlignedText original{.text = "ab  cd"};
  Rewriter out(original, /*aligned=*/true);
  out.copy(0, 2);
  out.put("\u2581", 2, 4);
  out.copy(4, 6);
  CHECK(out.result().text == "ab\u2581cd");
  CHECK(origin(out.result(), 0, 2) == "0-2");
  CHECK(origin(out.result(), 2, 5) == "2-4");
  CHECK(origin(out.result(), 1, 6) == "1-5");
  // Once more, of a part of it.
  const AlignedText again = out.result().part(2, 7);
  Rewriter next(again, /*aligned=*/true);
  next.put(" ", 0, 3);
  next.copy(3, 5);
  CHECK(next.result().text == " cd");
  CHECK(origin(next.result(), 0, 1) == "2-4");
  CHECK(origin(next.result(), 1, 3) == "4-6");
}

TEST_CASE("What is inserted stands for the next character, or for the last one") {
  const AlignedText original{.text = "\u00e9x"};
  Rewriter out(original, /*aligned=*/true);
  out.put("<", 0, 0);
  out.copy(0, 3);
  out.put(">", 3, 3);
  CHECK(out.result().text == "<\u00e9x>");
  CHECK(origin(out.result(), 0, 1) == "0-2");
  CHECK(origin(out.result(), 4, 5) == "2-3");
}

TEST_CASE("Without alignment there are no origins") {
  const AlignedText original{.text = "ab"};
  Rewriter out(original, /*aligned=*/false);
  out.put("xyz", 0, 2);
  CHECK(out.result().text == "xyz");
  CHECK(out.result().origins.empty());
}

}  // namespace zeroth::data::aligned_text_test
