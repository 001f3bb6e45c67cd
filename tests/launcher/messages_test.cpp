#include "launcher/transport/messages.h"

#include <doctest/doctest.h>

#include <csignal>
#include <random>

#include "base/error.h"

namespace zeroth::launcher::messages_test {
namespace {

const std::string kBytes("a 'quoted' \"text\"\n\0\xff\xfe", 22);

RemoteJob some_job() {
  RemoteJob job;
  job.command = {"finetune", "--prompt", kBytes, ""};
  job.working_directory = "/work/" + kBytes;
  job.env = {{"NCCL_DEBUG", "INFO"}, {"PYTHONPATH", kBytes}};
  job.slots = {0, 3, 1};
  job.bind_cores = false;
  job.timeout_seconds = 60;
  job.liveness_timeout = std::chrono::milliseconds(1500);
  job.requeue_code = 75;
  return job;
}

std::vector<Message> examples() {
  const RanksPolled seen{
      .ended = {{.rank = 5, .exit_status = {true, SIGKILL}, .reason = "out of memory"},
                {.rank = 0, .exit_status = {false, 3}}},
      .stopped = {{.rank = 2, .pid = 4711}}};
  return {Hello{"0.1.0", 7},
          Join{"0.1.0", kBytes, 4},
          Problems{{"no program", kBytes}},
          Ready{"cuda", "00ff", 29500, {"a note"}, "boot 4 7", {"0", "GPU-1"}},
          OutputLines{{{3, true, false, kBytes}, {0, false, true, ""}}},
          Warning{"careful"},
          Drained{std::nullopt},
          Drained{2},
          seen,
          SignalReceived{SIGTERM},
          some_job(),
          StartRanks{4, 3, 8, 1, 2, "10.0.0.1", 29500, 1.7e9 + 0.25, 120, {"00ff", 3, kBytes}},
          Suspend{true},
          WindowUpdate{uint64_t{1} << 63},
          Drain{},
          Shutdown{75, kBytes},
          SignalRanks{SIGKILL},
          Heartbeat{}};
}

// Endings and stopped ranks have no comparison of their own; their bytes do.
bool same(const Message& one, const Message& other) {
  return one.index() == other.index() && encode(one) == encode(other);
}

}  // namespace

TEST_CASE("each message arrives as it was sent") {
  for (const Message& message : examples()) {
    CAPTURE(message.index());
    CHECK(same(decode(encode(message)), message));
  }
}

TEST_CASE("arguments, paths and environment arrive byte for byte") {
  const Message got = decode(encode(some_job()));
  CHECK(std::get<RemoteJob>(got) == some_job());
  const auto seen = std::get<RanksPolled>(decode(encode(examples()[8])));
  CHECK(seen.ended[0].reason == "out of memory");
  CHECK(seen.ended[1].exit_status == ExitStatus{false, 3});
  CHECK(seen.stopped[0].pid == 4711);
}

TEST_CASE("escape_from_host: every text that the other side says is printable and has an end") {
  const std::string evil =
      "\x1b[2J\x1b]0;mine\x07\nzeroth: fake\r\xc2\x9b"
      "31m\xff\xe2\x80\xae";
  const std::string huge(1'000'000, 'x');
  const RanksPolled seen{.ended = {{.rank = 5, .exit_status = {true, SIGKILL}, .reason = evil}},
                         .stopped = {}};
  const std::vector<std::string> texts = {evil, huge};
  const std::vector<Message> messages = {
      Hello{evil, 7},
      Join{evil, evil, 4},
      Problems{texts},
      Ready{evil, evil, 29500, texts, evil, texts},
      Warning{evil},
      Warning{huge},
      seen,
      StartRanks{4, 3, 8, 1, 2, evil, 29500, 0, 120, {evil, 3, evil}},
      Shutdown{75, evil},
      Shutdown{75, huge}};
  for (Message message : messages) {
    CAPTURE(message.index());
    make_showable(message);
    const std::string bytes = encode(message);
    for (const char* const bad : {"\x1b", "\nz", "\r", "\xc2\x9b", "\xe2\x80\xae"})
      CHECK(bytes.find(bad) == std::string::npos);
    CHECK(bytes.size() < 40'000);
  }
}

TEST_CASE(
    "escape_from_host: lists have an end, indented lines stay, and bytes of a job are bytes") {
  Message many = Problems{std::vector<std::string>(100'000, "x")};
  make_showable(many);
  CHECK(std::get<Problems>(many).texts.size() == kMaxTexts);
  Message lines = Warning{"first\n  second\n"};
  make_showable(lines);
  CHECK(std::get<Warning>(lines).text == "first\n  second");
  Message job = some_job();
  make_showable(job);
  CHECK(std::get<RemoteJob>(job) == some_job());
}

TEST_CASE("a message that is cut anywhere, or has more behind it, is refused") {
  for (const Message& message : examples()) {
    CAPTURE(message.index());
    const std::string bytes = encode(message);
    for (size_t size = 0; size < bytes.size(); ++size)
      CHECK_THROWS_AS(decode(std::string_view(bytes).substr(0, size)), Error);
    CHECK_THROWS_AS(decode(bytes + '\0'), Error);
  }
}

TEST_CASE("lengths and numbers that cannot be are refused before memory is taken for them") {
  std::string lines = encode(OutputLines{{{0, false, false, "text"}}});
  lines[8 + 6] = '\x7f';  // so many lines
  CHECK_THROWS_WITH_AS(decode(lines), "malformed message", Error);
  std::string signal = encode(SignalRanks{SIGTERM});
  signal[8 + 4] = '\1';  // beyond an int
  CHECK_THROWS_AS(decode(signal), Error);
  std::string flag = encode(Suspend{true});
  flag[8] = '\2';
  CHECK_THROWS_AS(decode(flag), Error);
  CHECK_THROWS_WITH_AS(decode(std::string("\x63\0\0\0\0\0\0\0", 8)), "unknown kind of message: 99",
                       Error);
}

TEST_CASE("changed bytes give another message or an Error, and nothing else") {
  std::mt19937 random(11);
  int refused = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    const std::vector<Message> all = examples();
    std::string bytes = encode(all[random() % all.size()]);
    for (unsigned i = 0; i <= random() % 4; ++i)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    try {
      const Message message = decode(bytes);
      CHECK(encode(message) == bytes);
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(refused > 5'000);
}

}  // namespace zeroth::launcher::messages_test
