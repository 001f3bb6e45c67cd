#include "monitor/csv_monitor.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/monitor/events.h"
#include "tests/support/temp_folder.h"

namespace zeroth::monitor {

TEST_CASE("the files are DeepSpeed's to the byte: one per tag, one row per event") {
  const TempFolder folder;
  CsvMonitor(folder.path()).write(fixture_events());
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const auto name = entry.path().filename();
    CHECK_MESSAGE(read_text(entry.path()) == read_text(kFixtures / name), name);
    ++files;
  }
  CHECK(files == 4);
}

TEST_CASE("another run continues the files under the header that they have") {
  const TempFolder folder;
  const std::vector<Event> events = {{"Train/Samples/lr", 0.5, 4}};
  CsvMonitor(folder.path()).write(events);
  CsvMonitor(folder.path()).write(events);
  CHECK(read_text(folder.path() / "Train_Samples_lr.csv") == "step,lr\r\n4,0.5\r\n4,0.5\r\n");
}

TEST_CASE("rows are there as soon as they are written") {
  const TempFolder folder;
  CsvMonitor monitor(folder.path());
  monitor.write(std::vector<Event>{{"a b/c", 1, 2}});
  CHECK(read_text(folder.path() / "a_b_c.csv") == "step,c\r\n2,1.0\r\n");
}

TEST_CASE("numbers are written as Python writes them") {
  CHECK(python_number(1) == "1.0");
  CHECK(python_number(-3) == "-3.0");
  CHECK(python_number(5e-5) == "5e-05");
  CHECK(python_number(0.1) == "0.1");
  CHECK(python_number(-NAN) == "nan");
  CHECK(python_number(INFINITY) == "inf");
}

TEST_CASE("a file that cannot be written is named with the reason") {
  const TempFolder folder;
  std::filesystem::create_symlink("/dev/full", folder.path() / "lr.csv");
  CsvMonitor monitor(folder.path());
  const std::string message = message_of<Error>([&] {
    monitor.write(std::vector<Event>{{"lr", 1, 2}});
  });
  CHECK(message == (folder.path() / "lr.csv").string() + ": write failed: No space left on device");
}

}  // namespace zeroth::monitor
