// A running program of the tests, mostly zeroth itself: every wait for it has an end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temp_folder.h"

namespace zeroth::launcher {

using Environment = std::vector<std::pair<std::string, std::string>>;

// Starts `ZEROTH_BIN_DIR/PROGRAM arguments...` with outputs into files, or both into `output` where
// one is given (not owned). DS_ACCELERATOR is cpu and OMP_NUM_THREADS is not set unless
// `environment` says otherwise.
class LaunchedProcess {
 public:
  struct Result {
    int status = -1;  // exit code; -signal if a signal killed it
    std::string out;
    std::string err;
    double seconds = 0;  // until the end, from the last signal sent or else from the start
  };

  struct Program {  // another than zeroth, found along PATH
    std::vector<std::string> words;
  };
  explicit LaunchedProcess(const Program& program, const Environment& environment = {},
                           int output = -1);
  explicit LaunchedProcess(const std::vector<std::string>& arguments,
                           const Environment& environment = {}, int output = -1,
                           const std::string& program = "zeroth");
  LaunchedProcess(const LaunchedProcess&) = delete;
  LaunchedProcess& operator=(const LaunchedProcess&) = delete;
  ~LaunchedProcess();  // kills what still runs

  void signal(int number);
  pid_t pid() const { return pid_; }  // -1 once it has ended

  // Waits until `count` processes have noted their pids (see rank_program); throws after a minute,
  // as all that wait.
  std::vector<pid_t> wait_for_pids(size_t count) const;
  // Those that have done so by now.
  std::vector<pid_t> noted_pids() const;

  // Waits until `text` stands in its error output, which is in a file.
  void wait_for_words(const std::string& text) const;

  // Waits for the end.
  Result wait();

 private:
  TempFolder directory_;
  pid_t pid_ = -1;
  std::chrono::steady_clock::time_point since_;
};

// Starts zeroth and waits for it.
LaunchedProcess::Result run_zeroth(const std::vector<std::string>& arguments,
                                   const Environment& environment = {});

// The same with another program.
LaunchedProcess::Result run_program(const std::vector<std::string>& words,
                                    const Environment& environment = {});

// Path of the helper that plays a rank.
std::string rank_program();

// The process exists and is no zombie.
bool is_alive(pid_t pid);

// Polls until `condition` holds or `limit` has passed; the condition's last value.
bool eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds limit = std::chrono::minutes(1));

std::vector<std::string> lines_of(const std::string& text);

}  // namespace zeroth::launcher
