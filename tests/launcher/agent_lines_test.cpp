#include "launcher/cluster/agent_lines.h"

#include <doctest/doctest.h>

namespace zeroth::launcher {
namespace {

struct Sent {
  boost::asio::io_context io;
  std::vector<Lines> messages;
  AgentLines lines{io, [this](const Lines& bundle) { messages.push_back(bundle); }};

  void turn() {
    io.restart();
    io.poll();
  }
};

}  // namespace

TEST_CASE("lines of one turn go in one message, in order, with rank and output") {
  Sent sent;
  sent.lines.of(2, false, false).take("one", LineEnd::kNewline);
  sent.lines.of(3, true, true).take("two", LineEnd::kReturn);
  CHECK(sent.messages.empty());
  sent.turn();
  REQUIRE(sent.messages.size() == 1);
  CHECK(sent.messages[0] == Lines{{{2, false, false, "one"}, {3, true, true, "two"}}});
  CHECK(size_in_window(sent.messages[0]) == 6 + 2 * kLineBytes);
  CHECK(sent.lines.of(3, true, true).splits_returns());
  sent.turn();
  CHECK(sent.messages.size() == 1);
}

TEST_CASE("many lines of one turn go in several messages of a bounded size") {
  Sent sent;
  const std::string text(1000, 'x');
  for (int i = 0; i < 200; ++i) sent.lines.of(0, false, false).take(text, LineEnd::kNewline);
  sent.turn();
  CHECK(sent.messages.size() > 2);
  size_t count = 0;
  for (const Lines& message : sent.messages) {
    count += message.lines.size();
    CHECK(size_in_window(message) < AgentLines::kMessageBytes + 2000);
  }
  CHECK(count == 200);
}

TEST_CASE("a full window stops all outputs of the host until the launcher has taken some") {
  Sent sent;
  LineTarget& one = sent.lines.of(0, false, false);
  LineTarget& two = sent.lines.of(1, true, false);
  while (!one.full()) {
    one.take(std::string(100'000, 'x'), LineEnd::kNewline);
    sent.turn();
  }
  CHECK(two.full());
  int called = 0;
  for (LineTarget* target : {&one, &two}) target->when_empty([&] { ++called; });
  sent.lines.on_taken(1);
  CHECK(called == 0);
  sent.lines.on_taken(200'000);
  CHECK(called == 2);
  CHECK_FALSE(two.full());
  two.when_empty([&] { ++called; });
  CHECK(called == 3);
}

TEST_CASE("where nobody takes lines any more they are dropped, and no output waits") {
  Sent sent;
  LineTarget& target = sent.lines.of(0, false, false);
  while (!target.full()) {
    target.take(std::string(100'000, 'x'), LineEnd::kNewline);
    sent.turn();
  }
  int called = 0;
  target.when_empty([&] { ++called; });
  const size_t before = sent.messages.size();
  sent.lines.drop_all();
  CHECK(called == 1);
  for (int i = 0; i < 100; ++i) target.take(std::string(100'000, 'x'), LineEnd::kNewline);
  sent.turn();
  CHECK_FALSE(target.full());
  CHECK(sent.messages.size() == before);
}

}  // namespace zeroth::launcher
