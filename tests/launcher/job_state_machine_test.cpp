#include "launcher/run/job_state_machine.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <csignal>
#include <ostream>

#include "base/text/units.h"

namespace zeroth::launcher::job_state_machine_test {
namespace {

using std::chrono::milliseconds;
using JobActions = std::vector<JobAction>;

constexpr milliseconds kFailureGrace{3'000}, kSignalGrace{60'000};
constexpr ExitStatus kEndedWell{false, 0}, kExit3{false, 3}, kByTerm{true, SIGTERM},
    kByKill{true, SIGKILL}, kByFault{true, SIGSEGV};

const JobActions kNothing = {};
const JobActions kFinish = {DrainOutput{}};
const JobActions kKill = {SignalRanks{SIGKILL}};
const JobActions kEndAll = {SignalRanks{SIGTERM}, StartGracePeriod{kFailureGrace}};
const JobActions kHurry = {StartGracePeriod{kFailureGrace}};
const JobActions kLook = {PollSuspendedRanks{milliseconds(1000)}};

JobActions forward(int signal, int reported) {
  return {LogLine{signal_name(signal) +
                  ": ranks have 60 s to finish and save; a second signal ends them at once"},
          SignalRanks{reported}, StartGracePeriod{kSignalGrace}, SignalRanks{SIGCONT}};
}

const JobActions kSaveForNext = {LogLine{"host b has joined"}, SignalRanks{SIGTERM},
                                 StartGracePeriod{kSignalGrace}, SignalRanks{SIGCONT}};

RanksPolled ended(int rank, ExitStatus exit_status) {
  return {.ended = {{.rank = rank, .exit_status = exit_status}}, .stopped = {}};
}

RanksPolled stopped(std::vector<SuspendedRank> ranks) {
  return {.ended = {}, .stopped = std::move(ranks)};
}

struct Event {
  milliseconds at{0};
  JobEvent what;
  JobActions then;
};

struct Course {
  std::string name;
  std::vector<Event> events;
  int status = 0;
  std::string message = {};
  JobEnd end = JobEnd::kFinished;  // is looked at where nothing else tells
};

std::string to_message(const RankFailure& failure) {
  return describe_failure(failure);
}

void follow(const Course& course, const JobOptions& options) {
  CAPTURE(course.name);
  JobStateMachine job(3, options);
  int number = 0;
  for (const Event& event : course.events) {
    CAPTURE(++number);
    const bool as_expected = job.on(event.what, event.at) == event.then;
    CHECK(as_expected);
  }
  const JobOutcome outcome = job.outcome(to_message, std::nullopt);
  CHECK(outcome.status == course.status);
  CHECK(outcome.message == course.message);
  if (course.status == 0 || course.end != JobEnd::kFinished) CHECK(outcome.end == course.end);
}

RanksPolled all(ExitStatus first, ExitStatus second, ExitStatus third) {
  return {.ended = {{0, first}, {1, second}, {2, third}}, .stopped = {}};
}

const std::string kKilledOnes = "\nzeroth: ranks that did not end by themselves were killed";

// What happens, what is done then, and how it ends.
const std::vector<Course> kCourses = {
    {.name = "all end well",
     .events = {{milliseconds(0), ended(1, kEndedWell), kNothing},
                {milliseconds(5), ended(0, kEndedWell), kNothing},
                {milliseconds(9), ended(2, kEndedWell), kFinish},
                {milliseconds(9), RanksPolled{}, kNothing}}},
    {.name = "one fails, the others obey",
     .events = {{milliseconds(0), ended(1, kExit3), kEndAll},
                {milliseconds(5), ended(0, kByTerm), kNothing},
                {milliseconds(9), ended(2, kByTerm), kFinish}},
     .status = 3,
     .message = "rank 1 ended with exit code 3"},
    {.name = "one fails, another outstays its grace",
     .events = {{milliseconds(0), ended(1, kExit3), kEndAll},
                {milliseconds(5), ended(0, kByTerm), kNothing},
                {milliseconds(3000), GracePeriodOver{}, kKill},
                {milliseconds(3001), ended(2, kByKill), kFinish}},
     .status = 3,
     .message = "rank 1 ended with exit code 3" + kKilledOnes},
    {.name = "a death within 200 ms of the first is the cause when a signal killed it",
     .events = {{milliseconds(0), ended(1, kExit3), kEndAll},
                {milliseconds(150), ended(0, kByFault), kNothing},
                {milliseconds(160), ended(2, kByTerm), kFinish}},
     .status = 128 + SIGSEGV,
     .message = "rank 0 was killed by SIGSEGV"},
    {.name = "one later is not",
     .events = {{milliseconds(0), ended(1, kExit3), kEndAll},
                {milliseconds(250), ended(0, kByFault), kNothing},
                {milliseconds(260), ended(2, kByTerm), kFinish}},
     .status = 3,
     .message = "rank 1 ended with exit code 3"},
    {.name = "a signal that all obey",
     .events = {{milliseconds(0), SignalReceived{SIGTERM}, forward(SIGTERM, SIGTERM)},
                {milliseconds(50), all(kEndedWell, kByTerm, {false, 143}), kFinish}},
     .status = 143,
     .message = "stopped by SIGTERM"},
    {.name = "a signal, and all still end well",
     .events = {{milliseconds(0), SignalReceived{SIGINT}, forward(SIGINT, SIGINT)},
                {milliseconds(50), all(kEndedWell, kEndedWell, kEndedWell), kFinish}}},
    {.name = "ranks save for another round",
     .events = {{milliseconds(0), RestartRequest{"host b has joined"}, kSaveForNext},
                {milliseconds(5), RestartRequest{"host c has joined"}, kNothing},
                {milliseconds(50), all(kByTerm, {false, 143}, kByTerm), kFinish}},
     .end = JobEnd::kRestartRequested},
    {.name = "ranks that have saved for another round may say that all is well",
     .events = {{milliseconds(0), RestartRequest{"host b has joined"}, kSaveForNext},
                {milliseconds(50), all(kEndedWell, kEndedWell, kEndedWell), kFinish}},
     .end = JobEnd::kRestartRequested},
    {.name = "one that does not save for another round in time is killed",
     .events = {{milliseconds(0), RestartRequest{"host b has joined"}, kSaveForNext},
                {milliseconds(50), ended(0, kByTerm), kNothing},
                {milliseconds(60'000), GracePeriodOver{}, kKill},
                {milliseconds(60'001), ended(1, kByKill), kNothing},
                {milliseconds(60'002), ended(2, kByKill), kFinish}},
     .end = JobEnd::kRestartRequested},
    {.name = "one fails while ranks save for another round",
     .events = {{milliseconds(0), RestartRequest{"host b has joined"}, kSaveForNext},
                {milliseconds(50), ended(0, kByFault), kHurry},
                {milliseconds(60), ended(1, kByTerm), kNothing},
                {milliseconds(70), ended(2, kByTerm), kFinish}},
     .status = 128 + SIGSEGV,
     .message = "rank 0 was killed by SIGSEGV",
     .end = JobEnd::kFailed},
    {.name = "a signal while ranks save for another round is their first, not their second",
     .events = {{milliseconds(0), RestartRequest{"host b has joined"}, kSaveForNext},
                {milliseconds(50), SignalReceived{SIGINT}, {forward(SIGINT, SIGINT)[0]}},
                {milliseconds(500), SignalReceived{SIGINT}, kKill},
                {milliseconds(600), all(kByTerm, kByKill, kByKill), kFinish}},
     .status = 130,
     .message = "stopped by SIGINT" + kKilledOnes,
     .end = JobEnd::kStopped},
    {.name = "a terminal that closes ends ranks, by SIGTERM where they do nothing about SIGHUP",
     .events = {{milliseconds(0), SignalReceived{SIGHUP}, forward(SIGHUP, SIGHUP)},
                {milliseconds(50), all(ExitStatus{true, SIGHUP}, kByTerm, ExitStatus{false, 129}),
                 kFinish}},
     .status = 128 + SIGHUP,
     .message = "stopped by SIGHUP"},
    {.name = "the same signal at once is the same one; a second one kills",
     .events = {{milliseconds(0), SignalReceived{SIGINT}, forward(SIGINT, SIGINT)},
                {milliseconds(249), SignalReceived{SIGINT}, kNothing},
                {milliseconds(250), SignalReceived{SIGINT}, kKill},
                {milliseconds(260), all(kByKill, kByKill, kByKill), kFinish}},
     .status = 130,
     .message = "stopped by SIGINT" + kKilledOnes},
    {.name = "the same signal at once is the same one for output that is still to be written, too",
     .events = {{milliseconds(0), SignalReceived{SIGTERM}, forward(SIGTERM, SIGTERM)},
                {milliseconds(100), all(kByTerm, kByTerm, kByTerm), kFinish},
                {milliseconds(101), SignalReceived{SIGTERM}, kNothing},
                {milliseconds(300), SignalReceived{SIGTERM}, {ExitNow{}}}},
     .status = 143,
     .message = "stopped by SIGTERM"},
    {.name = "another signal is a second one, however soon",
     .events = {{milliseconds(0), SignalReceived{SIGTERM}, forward(SIGTERM, SIGTERM)},
                {milliseconds(1), SignalReceived{SIGINT}, kKill},
                {milliseconds(2), all(kByKill, kByKill, kByKill), kFinish}},
     .status = 143,
     .message = "stopped by SIGTERM" + kKilledOnes},
    {.name = "a rank that fails while others save hurries these, once",
     .events = {{milliseconds(0), SignalReceived{SIGTERM}, forward(SIGTERM, SIGTERM)},
                {milliseconds(10), ended(0, kByTerm), kNothing},
                {milliseconds(20), ended(1, kByFault), kHurry},
                {milliseconds(30), ended(2, kExit3), kFinish}},
     .status = 143,
     .message = "stopped by SIGTERM\nzeroth: rank 1 was killed by SIGSEGV"
                "\nzeroth: rank 2 ended with exit code 3"},
    {.name = "a signal after a failure kills what is left",
     .events = {{milliseconds(0), ended(1, kExit3), kEndAll},
                {milliseconds(10), SignalReceived{SIGINT}, kKill},
                {milliseconds(20), ended(0, kByKill), kNothing},
                {milliseconds(20), ended(2, kByKill), kFinish}},
     .status = 3,
     .message = "rank 1 ended with exit code 3" + kKilledOnes},
    {.name = "a rank that another process killed is reported, even if others are killed later",
     .events = {{milliseconds(0), SignalReceived{SIGTERM}, forward(SIGTERM, SIGTERM)},
                {milliseconds(300), ended(1, kByKill), kHurry},
                {milliseconds(3300), GracePeriodOver{}, kKill},
                {milliseconds(3301), ended(0, kByKill), kNothing},
                {milliseconds(3301), ended(2, kByKill), kFinish}},
     .status = 143,
     .message = "stopped by SIGTERM\nzeroth: rank 1 was killed by SIGKILL" + kKilledOnes},
    {.name = "after a signal the output of ranks that have ended is not awaited",
     .events = {{milliseconds(0), all(kEndedWell, kEndedWell, kEndedWell), kFinish},
                {milliseconds(1), SignalReceived{SIGINT}, {ExitNow{}}},
                {milliseconds(2), GracePeriodOver{}, kNothing}}},
    {.name = "output without a reader is given up",
     .events = {{milliseconds(0),
                 OutputLost{EPIPE},
                 {LogLine{"warning: standard output is lost from here on: Broken pipe; the job "
                          "continues"}}},
                {milliseconds(9), all(kEndedWell, kEndedWell, kEndedWell), kFinish}}},
    {.name = "a rank that stands still is named, and when it goes on",
     .events = {{milliseconds(0), stopped({{2, 77}}), kLook},
                {milliseconds(1000),
                 SuspendedRanksPolled{{{2, 77}}},
                 {LogLine{
                     "rank 2 is suspended (SIGSTOP or a debugger): the others will wait for it; "
                     "to resume it: kill -CONT 77"}}},
                {milliseconds(1500), stopped({}), kLook},
                {milliseconds(2500), SuspendedRanksPolled{}, {LogLine{"all ranks have resumed"}}},
                {milliseconds(3000), stopped({}), kNothing},
                {milliseconds(9000), all(kEndedWell, kEndedWell, kEndedWell), kFinish}}},
    {.name = "a rank that stood still when another failed is named",
     .events = {{milliseconds(0),
                 RanksPolled{.ended = {{0, kExit3}}, .stopped = {{1, 76}}},
                 {SignalRanks{SIGTERM}, StartGracePeriod{kFailureGrace},
                  PollSuspendedRanks{milliseconds(1000)}}},
                {milliseconds(1000), SuspendedRanksPolled{{{1, 76}}}, kNothing},
                {milliseconds(1001), ended(2, kByTerm), kNothing},
                {milliseconds(3000), GracePeriodOver{}, kKill},
                {milliseconds(3001), ended(1, kByKill), kFinish}},
     .status = 3,
     .message = "rank 0 ended with exit code 3\nzeroth: rank 1 was suspended (SIGSTOP or a "
                "debugger) when that happened: others may have waited for it" +
                kKilledOnes}};

}  // namespace

TEST_CASE("a job's course: what happens, what is done then, and how it ends") {
  const JobOptions options{.failure_grace = kFailureGrace, .signal_grace = kSignalGrace};
  for (const Course& course : kCourses) follow(course, options);
}

TEST_CASE("output that is all there is and gets lost is a failure, but for a reader that left") {
  const JobOptions options{.output_required = true};
  const Event end{milliseconds(1), all(kEndedWell, kEndedWell, kEndedWell), kFinish};
  follow({.name = "reader left",
          .events = {{milliseconds(0), OutputLost{EPIPE}, kNothing}, end},
          .status = 128 + SIGPIPE},
         options);
  follow({.name = "disk full",
          .events = {{milliseconds(0), OutputLost{ENOSPC}, kNothing}, end},
          .status = 1,
          .message = "error: standard output cannot be written: No space left on device"},
         options);
}

TEST_CASE("with quiet no word is said when a signal is forwarded") {
  JobStateMachine job(1, {.quiet = true, .signal_grace = kSignalGrace});
  const JobActions reported = {SignalRanks{SIGINT}, StartGracePeriod{kSignalGrace},
                               SignalRanks{SIGCONT}};
  const bool as_expected = job.on(SignalReceived{SIGINT}, milliseconds(0)) == reported;
  CHECK(as_expected);
}

TEST_CASE("what else the kernel's out-of-memory killer ended is reported with the failure") {
  JobStateMachine job(2, {});
  CHECK(job.on(ended(1, kExit3), milliseconds(0)) == kEndAll);
  CHECK(job.on(GracePeriodOver{}, milliseconds(9)) == kKill);
  CHECK(job.on(ended(0, kByKill), milliseconds(10)) == kFinish);
  const std::string message = job.outcome(to_message, 2).message;
  CHECK(message.find("killer ended 2 processes meanwhile") != std::string::npos);
}

TEST_CASE("a signal while a failed job comes to its end is told, so that none follows") {
  JobStateMachine job(2, {});
  job.on(ended(0, kExit3), milliseconds(0));
  CHECK(job.on(SignalReceived{SIGINT}, milliseconds(100)) == kKill);
  job.on(ended(1, kByKill), milliseconds(200));
  CHECK(job.outcome(to_message, std::nullopt).end == JobEnd::kFailed);
  CHECK(job.outcome(to_message, std::nullopt).signal == SIGINT);
}

TEST_CASE("stopped ranks are named once, with the way to continue them") {
  SuspendedRanksReporter ranks;
  CHECK(ranks.report({}, 3).empty());
  CHECK(ranks.report({{1, 41}}, 3) ==
        "rank 1 is suspended (SIGSTOP or a debugger): the others will wait for it; to resume it: "
        "kill -CONT 41");
  CHECK(ranks.any());
  CHECK(ranks.report({{1, 41}}, 3).empty());
  CHECK(ranks.report({{0, 40}, {1, 41}}, 3) ==
        "ranks 0, 1 are suspended (SIGSTOP or a debugger): the others will wait for them; to "
        "resume them: kill -CONT 40 41");
  CHECK(ranks.report({{0, 40}, {1, 41}}, 2) == "");
}

TEST_CASE("stopped ranks of several hosts are named with where to continue them") {
  SuspendedRanksReporter ranks;
  CHECK(ranks.report({{0, 40, "a"}, {5, 41, "b"}}, 8) ==
        "ranks 0, 5 are suspended (SIGSTOP or a debugger): the others will wait for them; to "
        "resume them: kill -CONT 40 (on host a) 41 (on host b)");
}

TEST_CASE("a lost host ends the job with 1, and is told before what its loss did to others") {
  JobStateMachine job(2, {});
  RanksPolled lost;
  lost.ended.push_back({.rank = 1,
                        .exit_status = kLostNodeExit,
                        .host = "b",
                        .lost_reason = "no heartbeat for 15 s"});
  CHECK(job.on(lost, milliseconds(0)) == kEndAll);
  CHECK(job.on(ended(0, kByTerm), milliseconds(5)) == kFinish);
  const JobOutcome outcome = job.outcome(to_message, std::nullopt);
  CHECK(outcome.status == 1);
  CHECK(outcome.message == "host b is lost: no heartbeat for 15 s; rank 1 ran there");
}

TEST_CASE("a job whose ranks are all stopped is told from one that waits for some of them") {
  SuspendedRanksReporter ranks;
  CHECK(ranks.report({{0, 40}, {1, 41}}, 2) ==
        "all ranks are suspended (SIGSTOP or a debugger): nothing happens until the job is "
        "resumed; to resume them: kill -CONT 40 41");
  CHECK(ranks.report({}, 2) == "all ranks have resumed");
  CHECK_FALSE(ranks.any());
  CHECK(ranks.report({{0, 40}}, 1) ==
        "rank 0 is suspended (SIGSTOP or a debugger): nothing happens until the job is resumed; to "
        "resume it: kill -CONT 40");
}

}  // namespace zeroth::launcher::job_state_machine_test
