// A run as one page: train_log.html, which any browser opens without a network.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_view.h"
#include "base/output_guard.h"
#include "monitor/curves.h"

namespace zeroth::monitor {

// What the page knows of a step. What is not known is a NaN.
struct PageStep {
  int64_t step = 0;
  double loss = 0;
  double lr = 0;
  double grad_norm = 0;
  double tokens_per_s = 0;
  double peak_share = 0;  // of the matrix peak
  double memory_mib = 0;  // resident
  double gpu_mib = 0;     // tensors on the GPU
  // The step in seconds: by what the engine does, and by what this rank is busy with.
  double data_s = 0, forward_s = 0, backward_s = 0, reduce_s = 0, update_s = 0;
  double compute_s = 0, communication_s = 0, waiting_s = 0;
};

struct PageFacts {
  struct Value {
    std::string key;  // "zero_optimization.stage"
    std::string value;
    std::string origin;  // "ds_config.json", "--lr", "default"
  };
  using Lines = std::vector<std::pair<std::string, std::string>>;  // title, text
  // One life of the ranks, of a run whose launcher starts them anew.
  struct RestartAttempt {
    int64_t round = 0, hosts = 1, ranks = 1;
    std::string cause = {};            // why the one before ended; empty: unknown
    int64_t step = 0;                  // behind which it goes on
    std::optional<int64_t> lost = {};  // steps; none: unknown
  };

  std::string title;
  int64_t total_steps = 0;
  Lines summary;
  std::vector<Value> config;
  Lines environment;
  std::vector<RestartAttempt> rounds = {};  // shown where there is more than one
  // Not shown, but read by a try after this one: the folder in OUTPUT/runs, and those of monitors.
  std::string run_name = {};
  std::vector<std::string> monitors = {};
};

// Once the page was made, what cannot be written is one warning: nothing but `guard` throws then.
class RunPage {
 public:
  using Warn = std::function<void(const std::string&)>;
  enum class Status { kRunning, kFinished, kStopped };

  // The run goes on behind `step`; of before, what history() said then, or nothing.
  struct PreviousRun {
    std::optional<JsonView> history;
    int64_t step = 0;
  };

  // `path`: of the page; its folder is made when that is missing. Throws an Error that names it
  // when nothing can be written there, and one that names what is wrong with `previous`: what stood
  // there stays then. `guard` is asked before each page gets its name.
  RunPage(std::filesystem::path path, PageFacts facts, Warn warn,
          const PreviousRun* previous = nullptr, OutputGuard guard = {});

  void step(const PageStep& step);
  void evaluation(int64_t step, double loss);
  // Replaces the page, whole.
  void write(Status state);

  // All that the page of a run that goes on needs. `seconds`: since 1970, when it is asked for.
  nlohmann::json history(double seconds) const;
  nlohmann::json history() const;

  // The page's text. `seconds`: since 1970, when it is written.
  std::string html(Status state, double seconds) const;

 private:
  void resume_from(const PreviousRun& previous);

  std::filesystem::path path_;
  PageFacts facts_;
  Warn warn_;
  OutputGuard guard_;
  Curves steps_;
  Curves evaluations_;
  double start_time_;    // seconds since 1970
  double downtime_ = 0;  // of the time since then, what no step of the curves comes from
  std::vector<int64_t> resume_steps_;  // behind which steps the run went on
  bool failed_ = false;
};

// What the page of an earlier try holds about that try.
struct PreviousPage {
  bool is_finished = false;
  double started = 0;  // seconds since 1970
  std::string run_name = {};
  std::vector<std::string> monitors = {};
};
// Empty where there is no page at `path`, or one that this program does not understand.
std::optional<PreviousPage> read_page(const std::filesystem::path& path);

// The page around the data: a file of this folder, built in.
extern const char* const kPageTemplate;

}  // namespace zeroth::monitor
