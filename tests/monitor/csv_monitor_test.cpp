#include "monitor/csv_monitor.h"

#include <doctest/doctest.h>

#include <chrono>
#include <ctime>
#include <filesystem>

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

TEST_CASE("a run that goes on takes back the rows beyond, and one that was cut in the middle") {
  const TempFolder folder;
  const auto goes_on = [&](const std::string& rows) {
    const auto path = folder.write("Train_Samples_lr.csv", rows);
    CsvMonitor monitor(folder.path());
    monitor.go_on_from(16);
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
  const TempFolder folder;
  const std::string former = "step,eval_loss\r\n40,3.5\r\n80,3.25\r\n";
  const auto path = folder.write("Train_Samples_eval_loss.csv", former + "40,3.0\r\n60,2.0\r\n");
  CsvMonitor(folder.path()).go_on_from(16);
  CHECK(read_text(path) == former);
  folder.write("Train_Samples_eval_loss.csv", former + "8,3.0\r\n40,2.0\r\n");
  CsvMonitor(folder.path()).go_on_from(16);
  CHECK(read_text(path) == former + "8,3.0\r\n");
}

TEST_CASE("a file of somebody else's stays as it is when a run goes on") {
  const TempFolder folder;
  const std::string rows = "step,price\r\n99,1\r\n100";
  for (const char* name : {"lr.csv", "notes.txt", "Train_Samples_lr.csv"}) folder.write(name, rows);
  folder.write("empty.csv", "");
  folder.write("zeros.csv", std::string(100, '\0'));
  std::filesystem::create_directory(folder / "folder.csv");
  CsvMonitor(folder.path()).go_on_from(16);
  for (const char* name : {"lr.csv", "notes.txt", "Train_Samples_lr.csv"}) {
    CHECK_MESSAGE(read_text(folder / name) == rows, name);
  }
  CHECK(read_text(folder / "zeros.csv").size() == 100);
}

TEST_CASE("begins_anew_doubles: the rows of a try that came to nothing go, those of others stay") {
  const TempFolder folder;
  const auto lr = folder.write("Train_Samples_lr.csv", "step,lr\r\n0,1.0\r\n8,0.5\r\n0,1.0\r\n8,");
  const auto loss = folder.write("Train_Samples_eval_loss.csv", "step,eval_loss\r\n0,3.0\r\n");
  const auto old = folder.write("Train_Samples_train_loss.csv", "step,train_loss\r\n8,3.0\r\n");
  const auto notes = folder.write("notes.csv", "step,mine\r\n8,3.0\r\n");
  const auto now = std::filesystem::last_write_time(lr);
  std::filesystem::last_write_time(old, now - std::chrono::hours(1));
  const double since = static_cast<double>(std::time(nullptr)) - 60;
  CsvMonitor(folder.path()).begin_anew(since);
  CHECK(read_text(lr) == "step,lr\r\n0,1.0\r\n8,0.5\r\n");
  CHECK(read_text(loss) == "step,eval_loss\r\n");
  CHECK(read_text(old) == "step,train_loss\r\n8,3.0\r\n");  // was not touched by that try
  CHECK(read_text(notes) == "step,mine\r\n8,3.0\r\n");
}

}  // namespace zeroth::monitor
