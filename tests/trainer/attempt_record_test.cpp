// The record of restart attempts in an output.
#include "trainer/attempt_log.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::trainer::attempt_record_test {
namespace {

const AttemptRecord kRecord{
    .run = "0123456789abcdef",
    .batch = 12,
    .micro_batch = 6,
    .run_name = "Nov23",
    .rounds = {{.ranks = 2, .lost = 0}, {.round = 1, .ranks = 1, .cause = "\"a\"\n<b>", .step = 8}},
    .step = 8};

}  // namespace

TEST_CASE("what a round leaves is read by the next one, and its steps are written in place") {
  const TempFolder directory;
  CHECK_FALSE(read_attempts(directory.path()));
  AttemptFile file(directory / "out", kRecord);
  file.step(11);
  const auto read = read_attempts(directory / "out");
  REQUIRE(read);
  CHECK(read->run == kRecord.run);
  CHECK(read->batch == 12);
  CHECK(read->micro_batch == 6);
  CHECK(read->run_name == "Nov23");
  CHECK(read->step == 11);
  REQUIRE(read->rounds.size() == 2);
  CHECK(read->rounds[0].lost == 0);
  CHECK(read->rounds[1].step == 8);
  CHECK_FALSE(read->rounds[1].lost);
  CHECK(read->rounds[1].cause == "\"a\"\\n<b>");  // made printable
}

TEST_CASE("the file of a round that is over takes no more steps") {
  const TempFolder directory;
  AttemptFile old(directory.path(), kRecord);
  const AttemptFile next(directory.path(), kRecord);
  old.step(99);
  CHECK(read_attempts(directory.path())->step == 8);
}

TEST_CASE("somebody else's text of rounds is an error that names the file") {
  const TempFolder directory;
  const auto read = [&](const std::string& text) {
    directory.write(kAttemptFile, text);
    (void)read_attempts(directory.path());
  };
  const std::string path = (directory / kAttemptFile).string();
  for (const std::string text : {"", "{}", "[1]", R"({"version": 2})"}) {
    CHECK(message_of<Error>([&] { read(text); }).starts_with(path));
  }
  std::string text = kRecord.text();
  CHECK_NOTHROW(read(text));
  text.replace(text.find("\"train_batch_size\":12"), 21, "\"train_batch_size\":-1");
  CHECK(message_of<Error>([&] { read(text); }).find("train_batch_size") != std::string::npos);
}

}  // namespace zeroth::trainer::attempt_record_test
