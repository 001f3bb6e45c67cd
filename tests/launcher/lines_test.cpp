#include "launcher/run/lines.h"

#include <doctest/doctest.h>

#include <vector>

namespace zeroth::launcher {
namespace {

// Lines as "text$", segments ended by '\r' as "text<".
struct Collected {
  std::vector<std::string> pieces;

  LineSplitter::Sink sink() {
    return [this](std::string_view text, LineEnd end) {
      pieces.push_back(std::string(text) + (end == LineEnd::kNewline ? "$" : "<"));
    };
  }
};

std::vector<std::string> split(bool returns, const std::vector<std::string>& chunks) {
  LineSplitter splitter(returns);
  Collected collected;
  for (const std::string& chunk : chunks) splitter.feed(chunk, collected.sink());
  splitter.flush(collected.sink());
  return collected.pieces;
}

using Pieces = std::vector<std::string>;

}  // namespace

TEST_CASE("lines are whole whatever the chunks, and a last partial one is flushed") {
  CHECK(split(false, {"a\nb", "c\n", "\n", "d"}) == Pieces{"a$", "bc$", "$", "d$"});
  CHECK(split(false, {"a\rb\r\n"}) == Pieces{"a\rb\r$"});
}

TEST_CASE("a return ends a progress segment at once") {
  CHECK(split(true, {"1%\r", "2%\r", "done\n"}) == Pieces{"1%<", "2%<", "done$"});
  CHECK(split(true, {"\r1%", "\r2%\r"}) == Pieces{"1%<", "2%<"});
}

TEST_CASE("a newline right after a return keeps the segment as a line") {
  CHECK(split(true, {"100%\r", "\n"}) == Pieces{"100%<", "100%$"});
  CHECK(split(true, {"a\r\n", "\n"}) == Pieces{"a<", "a$", "$"});
}

TEST_CASE("an endless line is cut") {
  const Pieces pieces = split(false, {std::string(LineSplitter::kMaxLineBytes + 1, 'x')});
  REQUIRE(pieces.size() == 2);
  CHECK(pieces[0].size() == LineSplitter::kMaxLineBytes + 1);
  CHECK(pieces[1] == "x$");
}

}  // namespace zeroth::launcher
