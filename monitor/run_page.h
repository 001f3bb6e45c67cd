// A report of a run as one page: train_log.html, which any browser opens without a network.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/files/output_lock.h"
#include "base/json/json_view.h"
#include "base/restart_attempt.h"
#include "monitor/curves.h"

namespace zeroth::monitor {

struct PageFacts {
  struct Value {
    std::string key;  // "zero_optimization.stage"
    std::string value;
    std::string origin;  // "ds_config.json", "--lr", "default"
  };
  using Lines = std::vector<std::pair<std::string, std::string>>;  // title, text

  std::string title;
  int64_t total_steps = 0;
  Lines summary;
  std::vector<Value> config;
  Lines environment;
  std::vector<AttemptRow> rounds = {};  // shown if there is more than one
  // Values that are not shown but read by a later attempt: the directory name in OUTPUT/runs, and
  // the directories of monitors.
  std::string run_name = {};
  std::vector<std::string> monitors = {};
};

// RunPage writes the page of a run. A failed write after construction is a single warning: only
// `guard` throws then.
class RunPage {
 public:
  using Warn = std::function<void(const std::string&)>;
  enum class Status { kRunning, kFinished, kStopped };

  // The earlier part of a run that resumes after `step`: what history() returned then, or nothing.
  struct PreviousRun {
    std::optional<JsonView> history;
    int64_t step = 0;
  };

  // Creates the page at `path`, and its directory if that is missing. Throws an Error that names
  // the path if nothing can be written there, and one that describes what is invalid in `previous`;
  // an existing page stays unchanged then. `guard` is called before each page gets its name.
  RunPage(std::filesystem::path path, PageFacts facts, Warn warn,
          const PreviousRun* previous = nullptr, OutputGuard guard = {});

  // Adds a step. `values` has its number, "step", and a number for each curve, by the name that the
  // curve has in --metrics; a NaN is unknown. memory_mib is resident memory, gpu_mib the peak of
  // tensors on the GPU.
  void step(const nlohmann::ordered_json& values);
  void evaluation(int64_t step, double loss);
  // Replaces the timeline of a step: {"step", "ranks": [{"name", "events": [[kind, micro-batch,
  // chunk, begin, end, waited]]}], "omitted"}; times are in microseconds from the step's
  // begin, kinds data, forward, backward, backward of inputs and of weights, reduce, update.
  void timeline(nlohmann::json timeline) { timeline_ = std::move(timeline); }
  // Replaces the page atomically.
  void write(Status state);

  // Returns all that the page of a resumed run needs. `seconds`: the current time since 1970.
  nlohmann::json history(double seconds) const;
  nlohmann::json history() const;

  // Returns the page's text. `seconds`: the time of writing since 1970.
  std::string html(Status state, double seconds) const;

 private:
  void resume_from(const PreviousRun& previous);

  std::filesystem::path path_;
  PageFacts facts_;
  Warn warn_;
  OutputGuard guard_;
  Curves steps_;
  Curves evaluations_;
  nlohmann::json timeline_;            // null: none
  double start_time_;                  // seconds since 1970
  double downtime_ = 0;                // part of the time since then in which the run was stopped
  std::vector<int64_t> resume_steps_;  // steps after which the run resumed
  bool failed_ = false;
};

// Facts about an earlier attempt, read from its page.
struct PreviousPage {
  bool is_finished = false;
  double started = 0;  // seconds since 1970
  std::string run_name = {};
  std::vector<std::string> monitors = {};
};
// Returns nothing if `path` holds no page, or one that this program does not understand.
std::optional<PreviousPage> read_page(const std::filesystem::path& path);

// Template of the page around its data: a file of this directory, compiled in.
extern const char* const kPageTemplate;

}  // namespace zeroth::monitor
