#include "monitor/tensorboard.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/monitor/events.h"
#include "tests/support/temp_folder.h"

namespace zeroth::monitor::tensorboard_test {
namespace {

constexpr double kWallTime = 1700000000.25;  // of the fixture

}  // namespace

TEST_CASE("records are those of TensorBoard's own writer, to the byte") {
  std::string bytes = version_record(kWallTime);
  std::vector<Event> events = fixture_events();
  events.push_back({"Train/Samples/lr", 0, 0});
  for (const Event& event : events) bytes += scalar_record(event, kWallTime);
  bytes += start_record(301, kWallTime);
  CHECK(bytes == read_text(kFixtures / "events.out.tfevents.golden"));
}

TEST_CASE("a run's file has the name that TensorBoard looks for, and its events at once") {
  const TempFolder directory;
  TensorBoard monitor(directory.path());
  const auto path = std::filesystem::directory_iterator(directory.path())->path();
  CHECK(path.filename().string().starts_with("events.out.tfevents."));
  const size_t before = read_text(path).size();
  CHECK(before == version_record(0).size());
  const Event event{"Train/Samples/lr", 0.5, 8};
  monitor.write(std::vector<Event>{event, event});
  CHECK(read_text(path).size() == before + 2 * scalar_record(event, 0).size());
}

TEST_CASE("a folder that is not there is an error with the path") {
  const std::string message = message_of<Error>([] { TensorBoard("/no/such/folder"); });
  CHECK(message.starts_with("/no/such/folder/events.out.tfevents."));
  CHECK(message.ends_with("cannot be written: No such file or directory"));
}

TEST_CASE("a file that goes on begins with a start behind the samples, which TensorBoard heeds") {
  const TempFolder directory;
  TensorBoard monitor(directory.path());
  monitor.resume_from(16);
  const auto path = std::filesystem::directory_iterator(directory.path())->path();
  const std::string bytes = read_text(path), start = start_record(17, 0);
  REQUIRE(bytes.size() == version_record(0).size() + 2 * start.size());
  // wall_time's nine bytes, then the step and the session log; between CRCs of four bytes.
  const auto body = [&](size_t at) { return bytes.substr(at + 12 + 9, start.size() - 12 - 9 - 4); };
  CHECK(body(version_record(0).size()) == start.substr(12 + 9, start.size() - 12 - 9 - 4));
  CHECK(body(version_record(0).size() + start.size()) == body(version_record(0).size()));
}

TEST_CASE("of the files in a folder the newest is the last by its name, whatever the clock says") {
  const TempFolder directory;
  std::vector<std::string> names;
  directory.write("events.out.tfevents.3999999998.elsewhere.1.0", "");
  directory.write("events.out.tfevents.99999999999999.nonsense", "");
  directory.write("events.out.tfevents.x", "");
  const TensorBoard one(directory.path());
  CHECK(std::filesystem::exists(directory.path()));
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    names.push_back(entry.path().filename().string());
  }
  CHECK(std::count_if(names.begin(), names.end(), [](const std::string& name) {
          return name.starts_with("events.out.tfevents.3999999999.");
        }) == 1);
}

}  // namespace zeroth::monitor::tensorboard_test
