#include "monitor/csv_monitor.h"

#include <doctest/doctest.h>

#include <chrono>
#include <ctime>
#include <filesystem>

#include "base/error.h"
#include "tests/monitor/events.h"
#include "tests/support/temp_folder.h"

namespace zeroth::monitor::csv_monitor_test {

TEST_CASE("the files are DeepSpeed's to the byte: one per tag, one row per event") {
  const TempFolder directory;
  CsvMonitor(directory.path()).write(fixture_events());
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    const auto name = entry.path().filename();
    CHECK_MESSAGE(read_text(entry.path()) == read_text(kFixtures / name), name);
    ++files;
  }
  CHECK(files == 4);
}

TEST_CASE("another run continues the files under the header that they have") {
  const TempFolder directory;
  const std::vector<Event> events = {{"Train/Samples/lr", 0.5, 4}};
  CsvMonitor(directory.path()).write(events);
  CsvMonitor(directory.path()).write(events);
  CHECK(read_text(directory.path() / "Train_Samples_lr.csv") == "step,lr\r\n4,0.5\r\n4,0.5\r\n");
}

TEST_CASE("rows are there as soon as they are written") {
  const TempFolder directory;
  CsvMonitor monitor(directory.path());
  monitor.write(std::vector<Event>{{"a b/c", 1, 2}});
  CHECK(read_text(directory.path() / "a_b_c.csv") == "step,c\r\n2,1.0\r\n");
}

TEST_CASE("numbers are written as Python writes them") {
  CHECK(format_python_float(1) == "1.0");
  CHECK(format_python_float(-3) == "-3.0");
  CHECK(format_python_float(5e-5) == "5e-05");
  CHECK(format_python_float(0.1) == "0.1");
  CHECK(format_python_float(-NAN) == "nan");
  CHECK(format_python_float(INFINITY) == "inf");
}

TEST_CASE("a file that cannot be written is named with the reason") {
  const TempFolder directory;
  std::filesystem::create_symlink("/dev/full", directory.path() / "lr.csv");
  CsvMonitor monitor(directory.path());
  const std::string message = message_of<Error>([&] {
    monitor.write(std::vector<Event>{{"lr", 1, 2}});
  });
  CHECK(message ==
        (directory.path() / "lr.csv").string() + ": write failed: No space left on device");
}

TEST_CASE("a run that goes on takes back the rows beyond, and one that was cut in the middle") {
  const TempFolder directory;
  const auto goes_on = [&](const std::string& rows) {
    const auto path = directory.write("Train_Samples_lr.csv", rows);
    CsvMonitor monitor(directory.path());
    monitor.resume_from(16);
    CHECK_MESSAGE(read_text(path) == rows.substr(0, read_text(path).size()), rows);
    monitor.write(std::vector<Event>{{"Train/Samples/lr", 0.5, 24}});
    return read_text(path);
  };
  const std::string to_16 = "step,lr\r\n8,0.1\r\n16,0.2\r\n", all = to_16 + "24,0.5\r\n";
  CHECK(goes_on(to_16) == all);
  CHECK(goes_on(to_16 + "24,0.3\r\n32,0.4\r\n") == all);
  CHECK(goes_on(to_16 + "24,0.3\r\n32,0.") == all);
  CHECK(goes_on(to_16 + "24,0.3\r") == all);
  CHECK(goes_on(to_16 + "2") == all);
  CHECK(goes_on("step,lr\r\n24,0.3\r\n") == "step,lr\r\n24,0.5\r\n");
  CHECK(goes_on("step,lr\n8,0.1\n24,0.3\n") == "step,lr\n8,0.1\n24,0.5\r\n");
  CHECK(goes_on("") == "step,lr\r\n24,0.5\r\n");
}

TEST_CASE("rows of the run before, in the same file, are not taken back") {
  const TempFolder directory;
  const std::string former = "step,eval_loss\r\n40,3.5\r\n80,3.25\r\n";
  const auto path = directory.write("Train_Samples_eval_loss.csv", former + "40,3.0\r\n60,2.0\r\n");
  CsvMonitor(directory.path()).resume_from(16);
  CHECK(read_text(path) == former);
  directory.write("Train_Samples_eval_loss.csv", former + "8,3.0\r\n40,2.0\r\n");
  CsvMonitor(directory.path()).resume_from(16);
  CHECK(read_text(path) == former + "8,3.0\r\n");
}

TEST_CASE("a file of somebody else's stays as it is when a run goes on") {
  const TempFolder directory;
  const std::string rows = "step,price\r\n99,1\r\n100";
  for (const char* name : {"lr.csv", "notes.txt", "Train_Samples_lr.csv"})
    directory.write(name, rows);
  directory.write("empty.csv", "");
  directory.write("zeros.csv", std::string(100, '\0'));
  std::filesystem::create_directory(directory / "folder.csv");
  CsvMonitor(directory.path()).resume_from(16);
  for (const char* name : {"lr.csv", "notes.txt", "Train_Samples_lr.csv"}) {
    CHECK_MESSAGE(read_text(directory / name) == rows, name);
  }
  CHECK(read_text(directory / "zeros.csv").size() == 100);
}

TEST_CASE("begins_anew_doubles: the rows of a try that came to nothing go, those of others stay") {
  const TempFolder directory;
  const auto lr =
      directory.write("Train_Samples_lr.csv", "step,lr\r\n0,1.0\r\n8,0.5\r\n0,1.0\r\n8,");
  const auto loss = directory.write("Train_Samples_eval_loss.csv", "step,eval_loss\r\n0,3.0\r\n");
  const auto old = directory.write("Train_Samples_train_loss.csv", "step,train_loss\r\n8,3.0\r\n");
  const auto notes = directory.write("notes.csv", "step,mine\r\n8,3.0\r\n");
  const auto now = std::filesystem::last_write_time(lr);
  std::filesystem::last_write_time(old, now - std::chrono::hours(1));
  const double since = static_cast<double>(std::time(nullptr)) - 60;
  CsvMonitor(directory.path()).start_over(since);
  CHECK(read_text(lr) == "step,lr\r\n0,1.0\r\n8,0.5\r\n");
  CHECK(read_text(loss) == "step,eval_loss\r\n");
  CHECK(read_text(old) == "step,train_loss\r\n8,3.0\r\n");  // was not touched by that try
  CHECK(read_text(notes) == "step,mine\r\n8,3.0\r\n");
}

}  // namespace zeroth::monitor::csv_monitor_test
