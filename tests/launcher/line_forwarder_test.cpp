#include "launcher/cluster/line_forwarder.h"

#include <doctest/doctest.h>

namespace zeroth::launcher::line_forwarder_test {
namespace {

struct Sent {
  boost::asio::io_context io;
  std::vector<OutputLines> messages;
  LineForwarder lines{io, [this](const OutputLines& bundle) { messages.push_back(bundle); }};

  void turn() {
    io.restart();
    io.poll();
  }
};

}  // namespace

TEST_CASE("lines of one turn go in one message, in order, with rank and output") {
  Sent sent;
  sent.lines.sink_for(2, false, false).write("one", LineEnd::kNewline);
  sent.lines.sink_for(3, true, true).write("two", LineEnd::kReturn);
  CHECK(sent.messages.empty());
  sent.turn();
  REQUIRE(sent.messages.size() == 1);
  CHECK(sent.messages[0] == OutputLines{{{2, false, false, "one"}, {3, true, true, "two"}}});
  CHECK(window_bytes(sent.messages[0]) == 6 + 2 * kLineBytes);
  CHECK(sent.lines.sink_for(3, true, true).splits_returns());
  sent.turn();
  CHECK(sent.messages.size() == 1);
}

TEST_CASE("many lines of one turn go in several messages of a bounded size") {
  Sent sent;
  const std::string text(1000, 'x');
  for (int i = 0; i < 200; ++i) sent.lines.sink_for(0, false, false).write(text, LineEnd::kNewline);
  sent.turn();
  CHECK(sent.messages.size() > 2);
  size_t count = 0;
  for (const OutputLines& message : sent.messages) {
    count += message.lines.size();
    CHECK(window_bytes(message) < LineForwarder::kMessageBytes + 2000);
  }
  CHECK(count == 200);
}

TEST_CASE("a full window stops all outputs of the host until the launcher has taken some") {
  Sent sent;
  LineSink& one = sent.lines.sink_for(0, false, false);
  LineSink& two = sent.lines.sink_for(1, true, false);
  while (!one.is_full()) {
    one.write(std::string(100'000, 'x'), LineEnd::kNewline);
    sent.turn();
  }
  CHECK(two.is_full());
  int called = 0;
  for (LineSink* target : {&one, &two}) target->when_empty([&] { ++called; });
  sent.lines.on_window_update(1);
  CHECK(called == 0);
  sent.lines.on_window_update(200'000);
  CHECK(called == 2);
  CHECK_FALSE(two.is_full());
  two.when_empty([&] { ++called; });
  CHECK(called == 3);
}

TEST_CASE("where nobody takes lines any more they are dropped, and no output waits") {
  Sent sent;
  LineSink& target = sent.lines.sink_for(0, false, false);
  while (!target.is_full()) {
    target.write(std::string(100'000, 'x'), LineEnd::kNewline);
    sent.turn();
  }
  int called = 0;
  target.when_empty([&] { ++called; });
  const size_t before = sent.messages.size();
  sent.lines.drop_all();
  CHECK(called == 1);
  for (int i = 0; i < 100; ++i) target.write(std::string(100'000, 'x'), LineEnd::kNewline);
  sent.turn();
  CHECK_FALSE(target.is_full());
  CHECK(sent.messages.size() == before);
}

}  // namespace zeroth::launcher::line_forwarder_test
